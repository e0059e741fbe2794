package restconfig_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"reeve/clients/go/reevetest"
	"reeve/clients/go/restconfig"
)

// shared is the server of the tests that reset it.
var shared *reevetest.Server

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
	}
	server, err := reevetest.New(context.Background(), reevetest.RBAC())
	if err != nil {
		panic(err)
	}
	shared = server
	code := m.Run()
	if err := server.Stop(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func clientOf(t *testing.T, server *reevetest.Server) *kubernetes.Clientset {
	t.Helper()
	config, err := restconfig.Of(server)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func create(t *testing.T, client kubernetes.Interface, name string) *corev1.ConfigMap {
	t.Helper()
	created, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func TestObjectsOfATestAreGoneInTheNextOne(t *testing.T) {
	for range 2 {
		t.Run("", func(t *testing.T) {
			shared.ResetAfter(t)
			client := clientOf(t, shared)
			create(t, client, "same-name")
			rule := reevetest.Rule{Verb: "delete", Fault: reevetest.Status(500, "left over")}
			if _, err := shared.AddFault(t.Context(), rule); err != nil {
				t.Fatal(err)
			}
		})
	}
	err := clientOf(t, shared).CoreV1().ConfigMaps("default").Delete(t.Context(), "same-name", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("the object and the fault are gone, but: %v", err)
	}
}

func TestAnInformerFollowsARestore(t *testing.T) {
	shared.ResetAfter(t)
	client := clientOf(t, shared)
	create(t, client, "kept")
	if err := shared.Snapshot(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps()
	events := make(chan string, 100)
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { events <- "added " + object.(*corev1.ConfigMap).Name },
		DeleteFunc: func(object any) { events <- "deleted " + object.(*corev1.ConfigMap).Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	expect(t, events, "added kept")
	create(t, client, "new")
	expect(t, events, "added new")
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, events, "deleted kept")
	lists := reevetest.RequestFilter{Resource: "configmaps", Verb: "watch"}
	before, err := shared.CountRequests(t.Context(), lists)
	if err != nil {
		t.Fatal(err)
	}
	written, err := shared.Restore(t.Context(), "before")
	if err != nil || written != 2 {
		t.Fatalf("%d objects, %v", written, err)
	}
	expect(t, events, "deleted new")
	expect(t, events, "added kept")
	after, err := shared.CountRequests(t.Context(), lists)
	if err != nil || after != before {
		t.Fatalf("the watch went on, but there are %d in place of %d, %v", after, before, err)
	}
}

func expect(t *testing.T, events <-chan string, wanted string) {
	t.Helper()
	select {
	case found := <-events:
		if found != wanted {
			t.Fatalf("%s in place of %s", found, wanted)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s", wanted)
	}
}

func TestALostAnswerLeavesTheObject(t *testing.T) {
	shared.ResetAfter(t)
	client := clientOf(t, shared)
	rule := reevetest.Rule{Verb: "create", Group: new(string), Resource: "configmaps", Times: 1, Fault: reevetest.LoseAnswer()}
	fault, err := shared.AddFault(t.Context(), rule)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("ambiguous"), metav1.CreateOptions{}); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		t.Fatalf("the connection breaks without an answer, but: %v", err)
	}
	if _, err := maps.Get(t.Context(), "ambiguous", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if hits, err := fault.Remove(t.Context()); err != nil || hits != 1 {
		t.Fatalf("%d hits, %v", hits, err)
	}
	if _, err := fault.Hits(t.Context()); !reevetest.IsNotFound(err) {
		t.Fatalf("the rule is removed, but: %v", err)
	}
	requests, err := shared.Requests(t.Context(), reevetest.RequestFilter{Verb: "create", Resource: "configmaps", Bodies: true})
	if err != nil || len(requests) != 1 || requests[0].Code != 0 || !strings.Contains(string(requests[0].Body), "ambiguous") {
		t.Fatalf("%+v, %v", requests, err)
	}
}

func TestAnOldWatchGetsGone(t *testing.T) {
	shared.ResetAfter(t)
	client := clientOf(t, shared)
	old := create(t, client, "first").ResourceVersion
	create(t, client, "second")
	if err := shared.ForgetHistory(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	opened, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
	if err == nil {
		defer opened.Stop()
		event := <-opened.ResultChan()
		if event.Type == watch.Error {
			err = apierrors.FromObject(event.Object)
		}
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Fatalf("the history is gone, but: %v", err)
	}
}

func TestAnExpiredPageGetsGone(t *testing.T) {
	shared.ResetAfter(t)
	client := clientOf(t, shared)
	for _, name := range []string{"a", "b", "c"} {
		create(t, client, name)
	}
	maps := client.CoreV1().ConfigMaps("default")
	page, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	// The newest version stays readable, as in etcd.
	create(t, client, "d")
	if err := shared.Compact(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	_, err = maps.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.Continue})
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("the page has expired, but: %v", err)
	}
}

func TestATestWaitsForRequests(t *testing.T) {
	shared.ResetAfter(t)
	client := clientOf(t, shared)
	go func() {
		for range 3 {
			_, _ = client.CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{})
		}
	}()
	filter := reevetest.RequestFilter{Verb: "list", Resource: "configmaps"}
	requests, err := shared.WaitForRequests(t.Context(), filter, 3)
	if err != nil || len(requests) < 3 || requests[0].User == "" {
		t.Fatalf("%+v, %v", requests, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := shared.WaitForRequests(ctx, filter, 100); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestTimePasses(t *testing.T) {
	server := reevetest.Start(t)
	before, err := server.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after, err := server.Advance(t.Context(), 48*time.Hour)
	if err != nil || after.Sub(before) < 48*time.Hour {
		t.Fatalf("%s, then %s, %v", before, after, err)
	}
	created := create(t, clientOf(t, server), "late")
	if created.CreationTimestamp.Time.Before(before.Add(47 * time.Hour)) {
		t.Fatalf("created at %s", created.CreationTimestamp)
	}
}

func TestAnOutageEnds(t *testing.T) {
	server := reevetest.Start(t)
	namespaces := clientOf(t, server).CoreV1().Namespaces()
	page, err := namespaces.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	later := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}}
	if _, err := namespaces.Create(t.Context(), later, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rest := metav1.ListOptions{Limit: 1, Continue: page.Continue}
	if _, err := namespaces.List(t.Context(), rest); err != nil {
		t.Fatal(err)
	}
	const lasts = 300 * time.Millisecond
	began := time.Now()
	if err := server.Outage(t.Context(), lasts); err != nil {
		t.Fatal(err)
	}
	// A busy machine may sleep through the outage. The history that it costs shows it at any time after its end.
	deadline := began.Add(30 * time.Second)
	for {
		_, err := namespaces.List(t.Context(), rest)
		if apierrors.IsResourceExpired(err) {
			if time.Since(began) < lasts {
				t.Fatalf("over after %s", time.Since(began))
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the history is still there: %v", err)
		}
	}
}

// A child process starts a server and is killed; the server has to end.
const childVariable = "REEVETEST_CHILD"

func child() {
	server, err := reevetest.New(context.Background())
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(server.URL() + "\n")
	select {}
}

func TestTheServerEndsWithItsParent(t *testing.T) {
	command := exec.Command(os.Args[0], "-test.run=^$")
	command.Env = append(os.Environ(), childVariable+"=1")
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 100)
	read, err := stdout.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(string(text[:read]))
	if !answers(t, url) {
		t.Fatalf("%s does not answer", url)
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for answers(t, url) {
		if time.Now().After(deadline) {
			t.Fatalf("%s still answers", url)
		}
	}
}

func answers(t *testing.T, url string) bool {
	t.Helper()
	config := rest.Config{Host: url}
	_, err := kubernetes.NewForConfigOrDie(&config).Discovery().ServerVersion()
	return err == nil
}
