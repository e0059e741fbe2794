package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var ordinary = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// A server serves stable versions by default. (kubernetes: DefaultAPIResourceConfigSource.)
var stable = regexp.MustCompile(`^v[0-9]+$`)

// Kinds that are parameters of a connection, and not objects.
var options = regexp.MustCompile(`Options$`)

// Writes the resources, and returns the types of their kinds and of the kinds of their subresources.
func writeResources(out io.Writer, folder string) []reflect.Type {
	known := scheme.Scheme
	for _, add := range []func() error{
		func() error { return apiextensions.AddToScheme(known) },
		func() error { return apiregistration.AddToScheme(known) },
	} {
		if err := add(); err != nil {
			log.Fatal(err)
		}
	}
	typeOf := func(kind schema.GroupVersionKind) reflect.Type {
		if options.MatchString(kind.Kind) {
			return nil
		}
		object, err := known.New(kind)
		if err != nil {
			log.Fatal(err)
		}
		return reflect.TypeOf(object).Elem()
	}
	roots := []reflect.Type{reflect.TypeOf(metav1.DeleteOptions{}), reflect.TypeOf(metav1.ListMeta{}), reflect.TypeOf(metav1.Status{})}
	var groups metav1.APIGroupList
	read(folder, "apis.json", &groups)
	versions := []schema.GroupVersion{{Version: "v1"}}
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			if stable.MatchString(version.Version) {
				versions = append(versions, schema.GroupVersion{Group: group.Name, Version: version.Version})
			}
		}
	}
	for _, version := range versions {
		fmt.Fprintf(out, "version %s\n", version)
		path := "apis__" + version.Group + "__" + version.Version + ".json"
		if version.Group == "" {
			path = "api__" + version.Version + ".json"
		}
		var list metav1.APIResourceList
		read(folder, path, &list)
		for _, resource := range list.APIResources {
			kind := version.WithKind(resource.Kind)
			name := resource.Kind
			if resource.Version != "" {
				kind = schema.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: resource.Kind}
				name = resource.Group + "/" + resource.Version + "/" + resource.Kind
			}
			goType := typeOf(kind)
			if goType != nil {
				roots = append(roots, goType)
			}
			verbs := strings.Join(resource.Verbs, ",")
			if slices.Equal(resource.Verbs, ordinary) {
				verbs = "*"
			}
			if _, subresource, found := strings.Cut(resource.Name, "/"); found {
				fmt.Fprintf(out, "subresource %s %s %s\n", subresource, name, verbs)
				continue
			}
			scope := "Cluster"
			if resource.Namespaced {
				scope = "Namespaced"
			}
			shown := "-"
			if goType != nil {
				shown = nameOf(goType)
			}
			fmt.Fprintf(out, "resource %s %s %s %s %s %s", resource.Name, resource.SingularName, name, scope, verbs, shown)
			if len(resource.ShortNames) > 0 {
				fmt.Fprintf(out, " short=%s", strings.Join(resource.ShortNames, ","))
			}
			if len(resource.Categories) > 0 {
				fmt.Fprintf(out, " categories=%s", strings.Join(resource.Categories, ","))
			}
			if stored := storedVersion(kind, resource.StorageVersionHash); stored != "" && stored != kind.Version {
				fmt.Fprintf(out, " stored=%s", stored)
			}
			fmt.Fprintln(out)
		}
	}
	return roots
}

// The version that objects are stored in, from its hash; empty for a resource that is not stored. Events are stored in
// another group.
func storedVersion(kind schema.GroupVersionKind, hash string) string {
	for _, version := range []string{kind.Version, "v1", "v2", "v1beta1", "v1beta2", "v1beta3"} {
		if hashOf(kind.Group+"/"+version+"/"+kind.Kind) == hash {
			return version
		}
	}
	return ""
}

// As in the package discovery of k8s.io/apiserver.
func hashOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

func read(folder, name string, into any) {
	text, err := os.ReadFile(filepath.Join(folder, "api", "discovery", name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		log.Fatal(err)
	}
}
