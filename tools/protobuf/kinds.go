package main

import (
	"log"
	"reflect"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The group versions that kube-apiserver serves by default.
var served = []schema.GroupVersion{
	{Group: "", Version: "v1"},
	{Group: "admissionregistration.k8s.io", Version: "v1"},
	{Group: "apiextensions.k8s.io", Version: "v1"},
	{Group: "apiregistration.k8s.io", Version: "v1"},
	{Group: "apps", Version: "v1"},
	{Group: "authentication.k8s.io", Version: "v1"},
	{Group: "authorization.k8s.io", Version: "v1"},
	{Group: "autoscaling", Version: "v1"},
	{Group: "autoscaling", Version: "v2"},
	{Group: "batch", Version: "v1"},
	{Group: "certificates.k8s.io", Version: "v1"},
	{Group: "coordination.k8s.io", Version: "v1"},
	{Group: "discovery.k8s.io", Version: "v1"},
	{Group: "events.k8s.io", Version: "v1"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"},
	{Group: "networking.k8s.io", Version: "v1"},
	{Group: "node.k8s.io", Version: "v1"},
	{Group: "policy", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "resource.k8s.io", Version: "v1"},
	{Group: "scheduling.k8s.io", Version: "v1"},
	{Group: "storage.k8s.io", Version: "v1"},
}

// The kinds of meta.k8s.io that are objects of requests or answers, by the group version that envelopes have.
var meta = []schema.GroupVersionKind{
	// client-go registers it with every group version; one entry stands for all.
	{Version: "v1", Kind: "DeleteOptions"},
	{Version: "v1", Kind: "Status"},
	{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"},
	{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadataList"},
	{Group: "meta.k8s.io", Version: "v1beta1", Kind: "PartialObjectMetadata"},
	{Group: "meta.k8s.io", Version: "v1beta1", Kind: "PartialObjectMetadataList"},
}

// A kind and its Go type.
type root struct {
	schema.GroupVersionKind
	goType reflect.Type
}

// The scheme of client-go with definitions of custom resources, aggregated APIs and metadata.
func types() *runtime.Scheme {
	known := scheme.Scheme
	for _, add := range []func(*runtime.Scheme) error{
		apiextensions.AddToScheme, apiregistration.AddToScheme, metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		if err := add(known); err != nil {
			log.Fatal(err)
		}
	}
	return known
}

// Whether a type of a group version is the body of a request or an answer: not the options of a query, not the types
// that every group version has, and not the list of objects of any kind, which exists in JSON only.
func isObject(kind string, of reflect.Type) bool {
	isMeta := strings.HasSuffix(of.PkgPath(), "/apis/meta/v1")
	return !isMeta && !strings.HasSuffix(kind, "Options") && kind != "List" && !strings.Contains(of.PkgPath(), "internal")
}

func roots(known *runtime.Scheme) []root {
	var found []root
	for _, version := range served {
		types := known.KnownTypes(version)
		if len(types) == 0 {
			log.Fatalf("%v has no kinds", version)
		}
		var kinds []string
		for kind, of := range types {
			if isObject(kind, of) {
				kinds = append(kinds, kind)
			}
		}
		sort.Strings(kinds)
		for _, kind := range kinds {
			found = append(found, root{version.WithKind(kind), types[kind]})
		}
	}
	for _, name := range meta {
		object, err := known.New(name)
		if err != nil {
			log.Fatal(err)
		}
		found = append(found, root{name, reflect.TypeOf(object).Elem()})
	}
	return found
}
