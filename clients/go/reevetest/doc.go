// Package reevetest runs tests against reeve-apiserver: a Kubernetes API server that starts in milliseconds, and does on
// request what real servers and networks do to clients on bad days.
//
//	func TestOperator(t *testing.T) {
//		server := reevetest.Start(t, reevetest.CRDs("config/crd/bases"))
//		config, err := restconfig.Of(server) // package reeve/clients/go/restconfig
//		…
//		// The next creation is stored, and its answer is lost on the way.
//		rule := reevetest.Rule{Verb: "create", Times: 1, Fault: reevetest.LoseAnswer()}
//		if _, err := server.AddFault(t.Context(), rule); err != nil {
//			t.Fatal(err)
//		}
//	}
//
// A server for a whole package is started in TestMain with [New], and [Server.ResetAfter] takes it back to its first state after
// each test.
//
// The package depends on the standard library only. The program is found by [Binary], by the variable REEVE_APISERVER, or in
// PATH. It ends with the process that started it, however that ends.
package reevetest
