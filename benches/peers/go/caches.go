package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kinds of the canned server.
var kinds = map[string]schema.GroupVersionKind{
	"configmaps": corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	"pods":       corev1.SchemeGroupVersion.WithKind("Pod"),
	"ipblocks":   ipBlockVersion.WithKind("IPBlock"),
}

// running is a cache of a peer.
type running struct {
	informer toolscache.SharedIndexInformer
	cancel   context.CancelFunc
	ended    chan struct{}
	// get reads an object as users do; nil if the cache does not hold it.
	get func(namespace, name string) metav1.Object
	// list reads all objects of a namespace as users do, and returns their number.
	list func(namespace string) int
}

// startCache starts the cache of -peer for -kind, with the handlers of every object and every change.
func startCache(streaming bool, handlers []*tally) (*running, error) {
	// Both peers read their feature gates from the environment, once.
	if err := os.Setenv("KUBE_FEATURE_WatchListClient", strconv.FormatBool(streaming)); err != nil {
		return nil, err
	}
	start := startClientGo
	if strings.HasPrefix(*peer, "controller-runtime") {
		start = startControllerRuntime
	}
	return start(clientConfig(), handlers)
}

// clientConfig is that of the canned server, whose certificate is self-signed.
func clientConfig() *rest.Config {
	host := *server
	if *objectsAt != "" {
		host = *objectsAt
	}
	config := &rest.Config{Host: host, QPS: -1}
	if strings.HasPrefix(host, "https:") {
		config.Insecure = true
	}
	return config
}

func (r *running) waitSynced() {
	if !toolscache.WaitForCacheSync(nil, r.informer.HasSynced) {
		fail(fmt.Errorf("the informer did not sync"))
	}
}

func (r *running) len() int { return len(r.informer.GetStore().ListKeys()) }

func (r *running) version(namespace, name string) uint64 {
	object := r.get(namespace, name)
	if object == nil {
		return 0
	}
	return versionOf(object)
}

func (r *running) stop() {
	r.cancel()
	<-r.ended
}

func versionOf(object metav1.Object) uint64 {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		fail(err)
	}
	return version
}

func startClientGo(config *rest.Config, handlers []*tally) (*running, error) {
	kind := kinds[*kindName]
	resource := kind.GroupVersion().WithResource(*kindName)
	indexers := toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}
	r := &running{}
	switch *peer {
	case "client-go", "client-go-protobuf":
		if *peer == "client-go-protobuf" {
			config.ContentType = runtime.ContentTypeProtobuf
		}
		if *kindName == "ipblocks" {
			return nil, skip("client-go has no typed informer of a custom resource without generated code")
		}
		core, err := typedcore.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		example := map[string]runtime.Object{"configmaps": &corev1.ConfigMap{}, "pods": &corev1.Pod{}}[*kindName]
		source := toolscache.NewListWatchFromClient(core.RESTClient(), *kindName, "", fields.Everything())
		r.informer = toolscache.NewSharedIndexInformer(source, example, 0, indexers)
		r.typedLister()
	case "client-go-meta":
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		generic := metadatainformer.NewFilteredMetadataInformer(client, resource, "", 0, indexers, nil)
		r.informer = generic.Informer()
		r.genericLister(generic.Lister())
	case "client-go-dyn":
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		generic := dynamicinformer.NewFilteredDynamicInformer(client, resource, "", 0, indexers, nil)
		r.informer = generic.Informer()
		r.genericLister(generic.Lister())
	default:
		return nil, fmt.Errorf("-peer=%s: not a form of client-go", *peer)
	}
	if err := register(r.informer, handlers); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan struct{})
	go func() {
		defer close(r.ended)
		r.informer.RunWithContext(ctx)
	}()
	return r, nil
}

// typedLister reads through the generated listers.
func (r *running) typedLister() {
	indexer := r.informer.GetIndexer()
	if *kindName == "pods" {
		pods := listers.NewPodLister(indexer)
		r.get = func(namespace, name string) metav1.Object { return found(pods.Pods(namespace).Get(name)) }
		r.list = func(namespace string) int { return length(pods.Pods(namespace).List(labels.Everything())) }
		return
	}
	maps := listers.NewConfigMapLister(indexer)
	r.get = func(namespace, name string) metav1.Object { return found(maps.ConfigMaps(namespace).Get(name)) }
	r.list = func(namespace string) int { return length(maps.ConfigMaps(namespace).List(labels.Everything())) }
}

func (r *running) genericLister(lister toolscache.GenericLister) {
	r.get = func(namespace, name string) metav1.Object {
		object, err := lister.ByNamespace(namespace).Get(name)
		if err != nil {
			return nil
		}
		return object.(metav1.Object)
	}
	r.list = func(namespace string) int { return length(lister.ByNamespace(namespace).List(labels.Everything())) }
}

func found[T metav1.Object](object T, err error) metav1.Object {
	if err != nil {
		return nil
	}
	return object
}

func length[T any](objects []T, err error) int {
	if err != nil {
		fail(err)
	}
	return len(objects)
}

// scheme of the kinds, for controller-runtime.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		fail(err)
	}
	scheme.AddKnownTypes(ipBlockVersion, &IPBlock{}, &IPBlockList{})
	metav1.AddToGroupVersion(scheme, ipBlockVersion)
	return scheme
}

// newMapper has the kinds without a request to the server.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, ipBlockVersion})
	for resource, kind := range kinds {
		singular := kind.GroupVersion().WithResource(strings.TrimSuffix(resource, "s"))
		mapper.AddSpecific(kind, kind.GroupVersion().WithResource(resource), singular, meta.RESTScopeNamespace)
	}
	return mapper
}

// objects makes an empty object and an empty list in the form of -peer.
func objects() (func() client.Object, func() client.ObjectList, error) {
	kind := kinds[*kindName]
	switch strings.TrimPrefix(*peer, "controller-runtime") {
	case "", "-nocopy":
		switch *kindName {
		case "configmaps":
			return func() client.Object { return &corev1.ConfigMap{} },
				func() client.ObjectList { return &corev1.ConfigMapList{} }, nil
		case "pods":
			return func() client.Object { return &corev1.Pod{} },
				func() client.ObjectList { return &corev1.PodList{} }, nil
		}
		return func() client.Object { return &IPBlock{} }, func() client.ObjectList { return &IPBlockList{} }, nil
	case "-dyn":
		return func() client.Object {
				object := &unstructured.Unstructured{}
				object.SetGroupVersionKind(kind)
				return object
			}, func() client.ObjectList {
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(kind)
				return list
			}, nil
	case "-meta":
		return func() client.Object {
				object := &metav1.PartialObjectMetadata{}
				object.SetGroupVersionKind(kind)
				return object
			}, func() client.ObjectList {
				list := &metav1.PartialObjectMetadataList{}
				list.SetGroupVersionKind(kind)
				return list
			}, nil
	}
	return nil, nil, fmt.Errorf("-peer=%s: not a form of controller-runtime", *peer)
}

func startControllerRuntime(config *rest.Config, handlers []*tally) (*running, error) {
	object, list, err := objects()
	if err != nil {
		return nil, err
	}
	noCopy := *peer == "controller-runtime-nocopy"
	options := cache.Options{Scheme: newScheme(), Mapper: newMapper(), DefaultUnsafeDisableDeepCopy: &noCopy}
	config.UserAgent = "peers"
	whole, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	informer, err := whole.GetInformer(ctx, object(), cache.BlockUntilSynced(false))
	if err != nil {
		cancel()
		return nil, err
	}
	r := &running{informer: informer.(toolscache.SharedIndexInformer), cancel: cancel, ended: make(chan struct{})}
	r.get = func(namespace, name string) metav1.Object {
		into := object()
		if err := whole.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
			return nil
		}
		return into
	}
	r.list = func(namespace string) int {
		into := list()
		if err := whole.List(ctx, into, client.InNamespace(namespace)); err != nil {
			fail(err)
		}
		return meta.LenList(into)
	}
	if err := register(r.informer, handlers); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(r.ended)
		if err := whole.Start(ctx); err != nil {
			fail(err)
		}
	}()
	return r, nil
}

// stampOf is when the server wrote an object, in microseconds since 1970; 0 if this form does not contain it.
func stampOf(object any) int64 {
	text := ""
	switch object := object.(type) {
	case *corev1.ConfigMap:
		text = object.Data["ts"]
	case *corev1.Pod:
		text = object.Spec.Hostname
	case *IPBlock:
		text = object.Spec.TS
	case *unstructured.Unstructured:
		for _, path := range [][]string{{"data", "ts"}, {"spec", "ts"}, {"spec", "hostname"}} {
			if found, ok, _ := unstructured.NestedString(object.Object, path...); ok {
				text = found
				break
			}
		}
	}
	stamp, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return stamp
}

func register(informer toolscache.SharedIndexInformer, handlers []*tally) error {
	for _, handler := range handlers {
		_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { handler.note(object) },
			UpdateFunc: func(_, object any) { handler.note(object) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}
