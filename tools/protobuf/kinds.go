package main

import (
	"log"
	"reflect"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// A group version, and its kinds that the API server reads from request bodies.
type served struct {
	group, version string
	kinds          []string
}

var all = []served{
	{"", "v1", []string{
		"ConfigMap", "Endpoints", "Event", "Namespace", "Node", "Pod", "Secret", "Service", "ServiceAccount",
		// client-go registers it with every group version; one entry stands for all.
		"DeleteOptions",
	}},
	{"apiextensions.k8s.io", "v1", []string{"CustomResourceDefinition"}},
	{"apps", "v1", []string{"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"}},
	{"authentication.k8s.io", "v1", []string{"SelfSubjectReview", "TokenRequest", "TokenReview"}},
	{"authorization.k8s.io", "v1", []string{
		"LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview",
	}},
	{"autoscaling", "v1", []string{"Scale"}},
	{"batch", "v1", []string{"Job"}},
	{"coordination.k8s.io", "v1", []string{"Lease"}},
	{"events.k8s.io", "v1", []string{"Event"}},
	{"networking.k8s.io", "v1", []string{"Ingress", "IngressClass"}},
	{"rbac.authorization.k8s.io", "v1", []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}},
}

// A kind and its Go type.
type root struct {
	schema.GroupVersionKind
	goType reflect.Type
}

// The scheme of client-go with the definitions of custom resources.
func types() *runtime.Scheme {
	known := scheme.Scheme
	if err := apiextensions.AddToScheme(known); err != nil {
		log.Fatal(err)
	}
	return known
}

func roots(known *runtime.Scheme) []root {
	var found []root
	for _, of := range all {
		for _, kind := range of.kinds {
			name := schema.GroupVersionKind{Group: of.group, Version: of.version, Kind: kind}
			object, err := known.New(name)
			if err != nil {
				log.Fatal(err)
			}
			found = append(found, root{name, reflect.TypeOf(object).Elem()})
		}
	}
	return found
}
