// The Go peers: client-go's and controller-runtime's queue, informers and controllers.
//
//	peer-go SCENARIO -peer=client-go|controller-runtime [-flag=value …]
//
// prints one line of JSON; exit 3 says that the peer has no such thing. Keys, orders and delays are those of the Rust
// peers (measure/src/keys.rs), byte for byte.
package main

import (
	"flag"
	"fmt"
	"os"
)

var (
	peer    = flag.String("peer", "client-go", "client-go or controller-runtime")
	n       = flag.Int("n", 0, "how many keys or objects; 0: the scenario's own number")
	threads = flag.Int("threads", 1, "producers, and as many workers")
	mode    = flag.String("mode", "", "the variant of a scenario")
	metrics = flag.String("metrics", "default", "default (client-go: off, controller-runtime: on), or off")
	work    = flag.Int("work", 0, "how long a run takes, in µs")
)

// scenarios by name; each prints its report or says why there is none.
var scenarios = map[string]func() (*report, error){
	"wq":      func() (*report, error) { return crowd(false) },
	"wqdedup": func() (*report, error) { return crowd(true) },
	"wqdelay": delayed,
	"wqlimit": limited,
	"wqmem":   memory,
	"starve":  starve,
}

// skip is the error of a peer that has no such thing.
type skip string

func (why skip) Error() string { return string(why) }

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("nothing to do: expected SCENARIO -peer=NAME [-flag=value …]"))
	}
	scenario := os.Args[1]
	run, known := scenarios[scenario]
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil || flag.NArg() > 0 || !known {
		fail(fmt.Errorf("%q %q: no such scenario or argument", scenario, flag.Args()))
	}
	if *peer != "client-go" && *peer != "controller-runtime" {
		fail(fmt.Errorf("-peer=%s: client-go or controller-runtime", *peer))
	}
	found, err := run()
	if why, ok := err.(skip); ok {
		print(map[string]any{"peer": *peer, "skip": string(why)})
		os.Exit(3)
	}
	if err != nil {
		fail(err)
	}
	found.fields["scenario"], found.fields["peer"] = scenario, *peer
	print(found.fields)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

func count(otherwise int) int {
	if *n > 0 {
		return *n
	}
	return otherwise
}
