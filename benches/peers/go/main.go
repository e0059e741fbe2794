// The Go peers: client-go's and controller-runtime's queue, informers, controllers and webhooks.
//
//	peer-go SCENARIO -peer=client-go|controller-runtime [-flag=value …]
//
// prints one line of JSON; exit 3 means that the peer does not have the feature. Keys, orders and delays are those of
// the Rust peers (measure/src/keys.rs), byte for byte.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

var (
	peer    = flag.String("peer", "client-go", "client-go or controller-runtime, with a suffix for another form: -meta, -dyn, …")
	n       = flag.Int("n", 0, "how many keys or objects; 0: the scenario's own number")
	threads = flag.Int("threads", 1, "producers, and as many workers")
	mode    = flag.String("mode", "", "the variant of a scenario")
	metrics = flag.String("metrics", "default", "default (client-go: off, controller-runtime: on), or off")
	work    = flag.Int("work", 0, "how long a run takes, in µs")

	server    = flag.String("server", "http://127.0.0.1:18080", "the canned server")
	kindName  = flag.String("kind", "configmaps", "configmaps, pods or ipblocks")
	handlers  = flag.Int("handlers", 1, "how many handlers receive the changes")
	events    = flag.Int("events", 0, "how many changes; 0: the scenario's own number")
	rate      = flag.Int("rate", 0, "changes a second; 0: the scenario's own number")
	secs      = flag.Float64("secs", 2, "how long to read")
	each      = flag.Int("each", 100, "fleet: how many objects each informer has")
	idle      = flag.Float64("idle", 10, "fleet: how long the idle informers are watched, in seconds")
	config    = flag.String("config", "", "restart: the kubeconfig of the API server")
	objectsAt = flag.String("objects", "", "where the objects are; by default the server")

	port         = flag.Int("port", 0, "webhooks: where the server listens, on 127.0.0.1")
	certificates = flag.String("certificates", "", "webhooks: the directory of tls.crt and tls.key")

	templates = flag.String("templates", "", "encode: where the server's templates are")
)

// scenarios by name; each prints its report or the reason why there is none.
var scenarios = map[string]func() (*report, error){
	"wq":      func() (*report, error) { return crowd(false) },
	"wqdedup": func() (*report, error) { return crowd(true) },
	"wqdelay": delayed,
	"wqlimit": limited,
	"wqmem":   memory,
	"starve":  starve,

	"sync":      synced,
	"steady":    steady,
	"latency":   latency,
	"get":       gets,
	"listns":    lists,
	"relist":    relist,
	"fleet":     fleet,
	"restart":   restart,
	"ctrlcold":  func() (*report, error) { return reconciled(false, false) },
	"ctrlburst": func() (*report, error) { return reconciled(true, false) },
	"ctrlwrite": func() (*report, error) { return reconciled(false, true) },

	"webhooks": serveWebhooks,

	"encode": encode,
}

// skip is the error of a peer that does not have the feature.
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
	if !strings.HasPrefix(*peer, "client-go") && !strings.HasPrefix(*peer, "controller-runtime") {
		fail(fmt.Errorf("-peer=%s: client-go or controller-runtime", *peer))
	}
	if _, known := kinds[*kindName]; !known {
		fail(fmt.Errorf("-kind=%s: configmaps, pods or ipblocks", *kindName))
	}
	found, err := run()
	if why, ok := err.(skip); ok {
		print(map[string]any{"peer": *peer, "skip": string(why)})
		os.Exit(3)
	}
	if err != nil {
		fail(err)
	}
	if found == nil {
		return
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
