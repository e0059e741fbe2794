// Writes the table of messages or the corpus to standard output; the argument selects one.
package main

import (
	"bufio"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	known := types()
	out := bufio.NewWriter(os.Stdout)
	if len(os.Args) != 2 {
		log.Fatal("usage: protobuf table|corpus")
	}
	switch os.Args[1] {
	case "table":
		writeTable(out, roots(known))
	case "corpus":
		writeCorpus(out, known, roots(known))
	default:
		log.Fatal("usage: protobuf table|corpus")
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
