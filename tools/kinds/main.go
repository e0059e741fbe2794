// Writes what the API server knows of the built-in kinds to standard output: the resources and the fields of their types.
// The argument is the folder of the module k8s.io/kubernetes, whose documents list the resources.
package main

import (
	"bufio"
	"log"
	"os"
)

const head = `# The resources that kube-apiserver serves by default and their types. Written by tools/kinds/generate.sh, not by hand.
#
#   version GROUP/VERSION                                in the order of discovery; VERSION alone is the core group
#   resource PLURAL SINGULAR KIND SCOPE VERBS TYPE …     then short=A,B, categories=A,B, and stored=, the version of
#                                                        the stored form if it is another; VERBS * are the ordinary eight;
#                                                        TYPE - is a kind without a type here
#   subresource NAME KIND VERBS                          of the resource above; GROUP/VERSION/KIND for another group version
#   type NAME …                                          a struct, and its fields below; atomic: apply replaces it as a whole
#   type NAME = FORM                                     a type with a form of its own in JSON
#   FIELD TYPE …                                         a field of the struct above
#
# TYPE: * pointer, [] list, {} map with text keys, then a scalar or a type; a name of the Go type stands in the brackets, or
# after a colon. ? is omitempty, ! is omitzero. After it: required; list= and keys= (the list type and map keys of apply);
# map=atomic; patch= and key= (strategic merge patch); enum=A|B; in= (the embedded Go struct that has the field); default=,
# where it is not the zero value of a field that is always written (- is none).
`

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: kinds FOLDER")
	}
	out := bufio.NewWriter(os.Stdout)
	if _, err := out.WriteString(head); err != nil {
		log.Fatal(err)
	}
	writeTypes(out, writeResources(out, os.Args[1]))
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
