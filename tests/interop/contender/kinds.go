package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// exchange keeps the content types of the last request and of its answer.
type exchange struct {
	next http.RoundTripper
	last string
}

func (e *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := e.next.RoundTrip(request)
	if err == nil {
		sent := request.Header.Get("Content-Type")
		e.last = strings.TrimSpace(sent + " -> " + response.Header.Get("Content-Type"))
	}
	return response, err
}

// servers has the clients at their defaults.
type servers struct {
	typed     *kubernetes.Clientset
	dynamic   *dynamic.DynamicClient
	resources []*metav1.APIResourceList
	seen      *exchange
}

// kindClient is the client of one kind: of the clientset, or the dynamic client for a kind that is not in its scheme.
type kindClient struct {
	client reflect.Value
	object runtime.Object
	ctx    context.Context
}

// walkKinds takes an object of each kind in a JSON file through create, apply, patch, watch, list and delete, and prints
// a line for each step, without versions, uids and times, so that the lines of two servers can be compared.
func walkKinds(config *rest.Config, file string) {
	text, err := os.ReadFile(file)
	check(err)
	var manifests []json.RawMessage
	check(json.Unmarshal(text, &manifests))
	config = rest.CopyConfig(config)
	seen := &exchange{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	all := &servers{seen: seen}
	all.typed, err = kubernetes.NewForConfig(config)
	check(err)
	all.dynamic, err = dynamic.NewForConfig(config)
	check(err)
	_, all.resources, err = discovery.ServerGroupsAndResources(all.typed)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, manifest := range manifests {
		all.walk(ctx, manifest)
	}
	fmt.Println("walked")
}

func (s *servers) walk(ctx context.Context, manifest []byte) {
	object, way := decode(manifest)
	kind := object.GetObjectKind().GroupVersionKind()
	named, err := meta.Accessor(object)
	check(err)
	name := named.GetName()
	uid := "<uid>"
	print := func(step string, err error, results ...any) {
		outcome := "ok"
		if err != nil {
			outcome = err.Error()
		}
		line := fmt.Sprintln(kind.GroupVersion(), kind.Kind, name, step, outcome, s.seen.last, fmt.Sprint(results...))
		fmt.Print(times.ReplaceAllStringFunc(strings.ReplaceAll(line, uid, "<uid>"), now))
	}
	client := s.client(ctx, object, named.GetNamespace())
	created, err := client.call("Create", client.object, metav1.CreateOptions{})
	if err != nil {
		print("create", err)
		return
	}
	made, err := meta.Accessor(created)
	check(err)
	uid = string(made.GetUID())
	print("create", nil, way, " ", content(created))
	label := func(value string) []byte {
		version, kind := kind.ToAPIVersionAndKind()
		metadata := map[string]any{"name": name, "labels": map[string]string{"applied": value}}
		text, err := json.Marshal(map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata})
		check(err)
		return text
	}
	applied, err := client.apply(name, label("yes"), metav1.ApplyOptions{FieldManager: "second"})
	print("apply", err, owners(applied))
	_, err = client.apply(name, label("no"), metav1.ApplyOptions{FieldManager: "third"})
	print("apply of another", err)
	forced, err := client.call("Patch", name, types.ApplyPatchType, label("forced"),
		metav1.PatchOptions{FieldManager: "third", Force: new(true)})
	print("forced apply", err, owners(forced))
	if err != nil {
		return
	}
	version, err := meta.NewAccessor().ResourceVersion(forced.(runtime.Object))
	check(err)
	patched, err := client.call("Patch", name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"walked":"yes"}}}`), metav1.PatchOptions{FieldManager: "fourth"})
	print("merge patch", err, owners(patched))
	event, err := client.watched(name, version)
	print("watch", err, event)
	list, err := client.call("List", metav1.ListOptions{LabelSelector: "walked=yes"})
	print("list", err, slices.Contains(names(list), name))
	background := metav1.DeletePropagationBackground
	_, err = client.call("Delete", name, metav1.DeleteOptions{PropagationPolicy: &background})
	print("delete", err)
}

// decode reads a manifest with client-go's scheme; a kind that is not in it becomes unstructured.
func decode(manifest []byte) (runtime.Object, string) {
	object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(manifest, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		object, _, err = unstructured.UnstructuredJSONScheme.Decode(manifest, nil, nil)
		check(err)
		return object, "unstructured"
	}
	check(err)
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return object, "typed"
}

// client finds the client of the clientset whose Create takes the type of the object.
func (s *servers) client(ctx context.Context, object runtime.Object, namespace string) kindClient {
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	if unknown, ok := object.(*unstructured.Unstructured); ok {
		kind := unknown.GroupVersionKind()
		return kindClient{reflect.ValueOf(s.dynamic.Resource(s.named(kind))), object, ctx}
	}
	set := reflect.ValueOf(s.typed)
	for index := range set.NumMethod() {
		if set.Method(index).Type().NumIn() != 0 {
			continue
		}
		group := set.Method(index).Call(nil)[0]
		for index := range group.NumMethod() {
			kinds := group.Method(index)
			if kinds.Type().NumOut() != 1 || kinds.Type().Out(0).Kind() != reflect.Interface {
				continue
			}
			create, ok := kinds.Type().Out(0).MethodByName("Create")
			if !ok || create.Type.NumIn() < 2 || create.Type.In(1) != reflect.TypeOf(object) {
				continue
			}
			var arguments []reflect.Value
			if kinds.Type().NumIn() == 1 {
				arguments = append(arguments, reflect.ValueOf(namespace))
			}
			return kindClient{kinds.Call(arguments)[0].Elem(), object, ctx}
		}
	}
	panic(fmt.Sprintf("the clientset has no client for %T", object))
}

// named finds the resource of a kind; those that are not in the scheme are not namespaced.
func (s *servers) named(kind schema.GroupVersionKind) schema.GroupVersionResource {
	for _, list := range s.resources {
		if list.GroupVersion != kind.GroupVersion().String() {
			continue
		}
		for _, one := range list.APIResources {
			if one.Kind == kind.Kind && !strings.Contains(one.Name, "/") {
				return kind.GroupVersion().WithResource(one.Name)
			}
		}
	}
	panic(fmt.Sprint("not served: ", kind))
}

// call calls a method of the client: its last result is an error, its first one an object, if there are two.
func (r kindClient) call(method string, arguments ...any) (any, error) {
	values := []reflect.Value{reflect.ValueOf(r.ctx)}
	for _, argument := range arguments {
		values = append(values, reflect.ValueOf(argument))
	}
	results := r.client.MethodByName(method).Call(values)
	if err, ok := results[len(results)-1].Interface().(error); ok {
		return nil, err
	}
	return results[0].Interface(), nil
}

// apply applies a configuration of the generated type, or an unstructured one.
func (r kindClient) apply(name string, configuration []byte, options metav1.ApplyOptions) (any, error) {
	if _, ok := r.object.(*unstructured.Unstructured); ok {
		object, _ := decode(configuration)
		return r.call("Apply", name, object, options)
	}
	kind := r.client.MethodByName("Apply").Type().In(1).Elem()
	typed := reflect.New(kind).Interface()
	check(json.Unmarshal(configuration, typed))
	return r.call("Apply", typed, options)
}

// watched is the first event after a version that has the label of the patch: a real server writes some objects itself.
func (r kindClient) watched(name, version string) (string, error) {
	stream, err := r.call("Watch", metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: version, TimeoutSeconds: new(int64(10)),
	})
	if err != nil {
		return "", err
	}
	events := stream.(watch.Interface)
	defer events.Stop()
	for event := range events.ResultChan() {
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return "", fmt.Errorf("%s %v", event.Type, event.Object)
		}
		if object.GetLabels()["walked"] != "" {
			return fmt.Sprint(event.Type, " ", owners(event.Object)), nil
		}
	}
	return "ended", nil
}

// owners lists the managers of an object's fields, with the fields. Those of a status are left out: a real server's own
// set it meanwhile.
func owners(object any) string {
	if object == nil {
		return ""
	}
	one, err := meta.Accessor(object)
	check(err)
	var all []string
	for _, entry := range one.GetManagedFields() {
		if entry.Subresource == "" {
			all = append(all, fmt.Sprint(entry.Manager, " ", entry.Operation, " ", entry.APIVersion, " ", entry.FieldsV1.GetRawString()))
		}
	}
	slices.Sort(all)
	return fmt.Sprint(one.GetLabels(), " ", strings.Join(all, "; "))
}

// content is an object without what each server chooses.
func content(object any) string {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	check(err)
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(fields, "metadata", field)
	}
	// The finalizers that protect volumes and claims in use are not set by the built-in server, which does not remove them.
	if finalizers, found, _ := unstructured.NestedStringSlice(fields, "metadata", "finalizers"); found {
		finalizers = slices.DeleteFunc(finalizers, func(one string) bool { return strings.HasSuffix(one, "-protection") })
		unstructured.RemoveNestedField(fields, "metadata", "finalizers")
		if len(finalizers) > 0 {
			check(unstructured.SetNestedStringSlice(fields, finalizers, "metadata", "finalizers"))
		}
	}
	// The last four are the user in a CertificateSigningRequest, whose uid each server chooses.
	for _, field := range []string{"clusterIP", "clusterIPs", "uid", "username", "groups", "extra"} {
		unstructured.RemoveNestedField(fields, "spec", field)
	}
	text, err := json.Marshal(fields)
	check(err)
	return string(text)
}

// now replaces a time of this walk; those of the manifests are older.
func now(text string) string {
	moment, err := time.Parse(time.RFC3339, text)
	if err == nil && time.Since(moment) < time.Hour {
		return "<now>"
	}
	return text
}

func names(list any) []string {
	if list == nil {
		return nil
	}
	items, err := meta.ExtractList(list.(runtime.Object))
	check(err)
	var names []string
	for _, item := range items {
		one, err := meta.Accessor(item)
		check(err)
		names = append(names, one.GetName())
	}
	return names
}
