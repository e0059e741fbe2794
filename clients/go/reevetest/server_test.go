package reevetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reeve/clients/go/reevetest"
)

const maps = "/api/v1/namespaces/default/configmaps"

// request returns the code and the body of an answer; the code is 0 if there is none.
func request(t *testing.T, server *reevetest.Server, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := server.Client().Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func get(t *testing.T, server *reevetest.Server, path string) int {
	t.Helper()
	code, _ := request(t, server, http.MethodGet, path, "")
	return code
}

func create(t *testing.T, server *reevetest.Server, name string) int {
	t.Helper()
	code, _ := request(t, server, http.MethodPost, maps, `{"metadata": {"name": "`+name+`"}}`)
	return code
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCredentialsAreThoseOfTheAdministrator(t *testing.T) {
	server := reevetest.Start(t, reevetest.RBAC())
	if !strings.HasPrefix(server.URL(), "https://127.0.0.1:") || server.Token() == "" || len(server.CertificateAuthority()) == 0 {
		t.Fatalf("%s %q", server.URL(), server.Token())
	}
	if code := get(t, server, maps); code != http.StatusOK {
		t.Fatal(code)
	}
	written, err := os.ReadFile(server.WriteKubeconfig(t))
	must(t, err)
	if string(written) != string(server.Kubeconfig()) || !strings.Contains(string(written), server.URL()) {
		t.Fatalf("%s", written)
	}
}

func TestObjectsAndFlagsOfTheStart(t *testing.T) {
	folder := t.TempDir()
	seed := filepath.Join(folder, "seed.yaml")
	must(t, os.WriteFile(seed, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: seed}\n"), 0o600))
	crd := filepath.Join(folder, "crd.yaml")
	must(t, os.WriteFile(crd, []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`), 0o600))
	server := reevetest.Start(t, reevetest.CRDs(crd), reevetest.Manifests(seed), reevetest.Flags("--minor", "34"))
	for _, path := range []string{maps + "/seed", "/apis/example.com/v1/widgets"} {
		if code := get(t, server, path); code != http.StatusOK {
			t.Fatalf("%s: %d", path, code)
		}
	}
	if _, version := request(t, server, http.MethodGet, "/version", ""); !strings.Contains(version, `"34"`) {
		t.Fatal(version)
	}
}

func TestAServerThatDoesNotStartIsAnErrorWithItsLog(t *testing.T) {
	_, err := reevetest.New(t.Context(), reevetest.CRDs("no-such-folder"))
	if err == nil || !strings.Contains(err.Error(), "--crd-dir no-such-folder") {
		t.Fatal(err)
	}
	_, err = reevetest.New(t.Context(), reevetest.Binary("no-such-program"))
	if err == nil || !strings.Contains(err.Error(), reevetest.BinaryVariable) {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = reevetest.New(ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestAServerStopsOnce(t *testing.T) {
	server, err := reevetest.New(t.Context())
	must(t, err)
	must(t, server.Stop())
	must(t, server.Stop())
	if code := get(t, server, maps); code != 0 {
		t.Fatal(code)
	}
}

func TestFaultsHaveTheFormOfTheServer(t *testing.T) {
	server := reevetest.Start(t)
	all := []reevetest.Fault{
		reevetest.Status(503, "later").RetryAfter(2 * time.Second), reevetest.Text(429, "slow down"), reevetest.Delay(time.Millisecond),
		reevetest.DelayAnswer(time.Millisecond), reevetest.Reset(), reevetest.LoseAnswer(), reevetest.Stall(), reevetest.Stale("10003"),
		reevetest.CloseEmpty(), reevetest.ResetAfter(1), reevetest.CloseAfter(1), reevetest.TruncateAfter(1), reevetest.StallAfter(1),
	}
	for _, fault := range all {
		rule := reevetest.Rule{
			Verb: "get", Group: new(string), Resource: "configmaps", Namespace: "n", Name: "x", Subresource: new(string), UserAgent: "a",
			After: 1, Times: 2, Probability: 0.5, Fault: fault,
		}
		sent, err := json.Marshal(rule)
		must(t, err)
		added, err := server.AddFault(t.Context(), rule)
		must(t, err)
		_, listed := request(t, server, http.MethodGet, "/reeve/v1/faults", "")
		var found struct {
			Items []struct {
				Rule json.RawMessage `json:"rule"`
			} `json:"items"`
		}
		must(t, json.Unmarshal([]byte(listed), &found))
		if len(found.Items) != 1 || !sameJSON(t, found.Items[0].Rule, sent) {
			t.Fatalf("%s\n%s", sent, listed)
		}
		_, err = added.Remove(t.Context())
		must(t, err)
	}
	_, err := server.AddFault(t.Context(), reevetest.Rule{Verb: "fetch", Fault: reevetest.Reset()})
	var refused *reevetest.Error
	if !errors.As(err, &refused) || refused.Code != http.StatusBadRequest || !strings.Contains(refused.Message, "fetch") {
		t.Fatal(err)
	}
}

func sameJSON(t *testing.T, one, other []byte) bool {
	t.Helper()
	var values [2]any
	for index, text := range [][]byte{one, other} {
		must(t, json.Unmarshal(text, &values[index]))
	}
	texts := [2]string{}
	for index, value := range values {
		text, err := json.Marshal(value)
		must(t, err)
		texts[index] = string(text)
	}
	return texts[0] == texts[1]
}

func TestAFaultHitsAndIsCleared(t *testing.T) {
	server := reevetest.Start(t)
	fault, err := server.AddFault(t.Context(), reevetest.Rule{Verb: "list", Times: 1, Fault: reevetest.Status(503, "later")})
	must(t, err)
	if first, second := get(t, server, maps), get(t, server, maps); first != 503 || second != 200 {
		t.Fatal(first, second)
	}
	hits, err := fault.Hits(t.Context())
	must(t, err)
	if hits != 1 {
		t.Fatal(hits)
	}
	_, err = server.AddFault(t.Context(), reevetest.Rule{Fault: reevetest.Reset()})
	must(t, err)
	if code := get(t, server, maps); code != 0 {
		t.Fatal(code)
	}
	must(t, server.ClearFaults(t.Context()))
	if code := get(t, server, maps); code != 200 {
		t.Fatal(code)
	}
}

func TestSnapshotsAndTheLog(t *testing.T) {
	server := reevetest.Start(t)
	create(t, server, "a")
	must(t, server.Snapshot(t.Context(), "one"))
	create(t, server, "b")
	written, err := server.Restore(t.Context(), "one")
	must(t, err)
	if written != 1 || get(t, server, maps+"/a") != 200 || get(t, server, maps+"/b") != 404 {
		t.Fatal(written)
	}
	count, err := server.CountRequests(t.Context(), reevetest.RequestFilter{Verb: "get", Code: 404})
	must(t, err)
	if count != 1 {
		t.Fatal(count)
	}
	must(t, server.ClearRequests(t.Context()))
	requests, err := server.Requests(t.Context(), reevetest.RequestFilter{})
	must(t, err)
	if len(requests) != 0 {
		t.Fatal(requests)
	}
	must(t, server.DeleteSnapshot(t.Context(), "one"))
	if _, err := server.Restore(t.Context(), "one"); !reevetest.IsNotFound(err) {
		t.Fatal(err)
	}
	must(t, server.Reset(t.Context()))
	if code := get(t, server, maps+"/a"); code != 404 {
		t.Fatal(code)
	}
}

func TestSwitchesAndWatches(t *testing.T) {
	server := reevetest.Start(t)
	streaming := maps + "?watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	must(t, server.SetStreamingLists(t.Context(), false))
	if code := get(t, server, streaming); code != 422 {
		t.Fatal(code)
	}
	must(t, server.SetStreamingLists(t.Context(), true))
	must(t, server.SetBookmarks(t.Context(), false))
	must(t, server.SetBookmarks(t.Context(), true))
	if code := get(t, server, streaming); code != 200 {
		t.Fatal(code)
	}
	ended := make(chan int)
	go func() {
		code, _ := request(t, server, http.MethodGet, maps+"?watch=true", "")
		ended <- code
	}()
	_, err := server.WaitForRequests(t.Context(), reevetest.RequestFilter{Verb: "watch"}, 3)
	must(t, err)
	must(t, server.CloseWatches(t.Context()))
	if code := <-ended; code != 200 {
		t.Fatal(code)
	}
}
