package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// restart runs informers, one for each namespace, while their API server restarts; see measure/src/restart.rs.
func restart() (*report, error) {
	informers := count(100)
	settings, err := clientcmd.BuildConfigFromFlags("", *config)
	if err != nil {
		return nil, err
	}
	settings.QPS = -1
	settings.UserAgent = "peer-go"
	settings.ContentType = runtime.ContentTypeProtobuf
	handler := &tally{timed: true}
	changes := onceEach(handler)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := start()
	switch *peer {
	case "client-go":
		core, err := typedcore.NewForConfig(settings)
		if err != nil {
			return nil, err
		}
		for i := range informers {
			source := toolscache.NewListWatchFromClient(core.RESTClient(), "configmaps", namespaceOf(i), fields.Everything())
			informer := toolscache.NewSharedIndexInformer(source, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
			if _, err := informer.AddEventHandler(changes); err != nil {
				return nil, err
			}
			go informer.RunWithContext(ctx)
		}
	case "controller-runtime":
		spaces := map[string]cache.Config{}
		for i := range informers {
			spaces[namespaceOf(i)] = cache.Config{}
		}
		whole, err := cache.New(settings, cache.Options{Scheme: newScheme(), Mapper: newMapper(), DefaultNamespaces: spaces})
		if err != nil {
			return nil, err
		}
		informer, err := whole.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		_, err = informer.AddEventHandler(changes)
		if err != nil {
			return nil, err
		}
		go func() {
			if err := whole.Start(ctx); err != nil {
				fail(err)
			}
		}()
	default:
		return nil, fmt.Errorf("-peer=%s: client-go or controller-runtime", *peer)
	}
	if err := handler.wait(informers); err != nil {
		return nil, err
	}
	handler.mutex.Lock()
	handler.late = nil
	handler.mutex.Unlock()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return nil, err
	}
	used := watch.stop()
	handler.mutex.Lock()
	defer handler.mutex.Unlock()
	if len(handler.late) == 0 {
		return nil, fmt.Errorf("no change was received")
	}
	return newReport(len(handler.late), used).latency(handler.late), nil
}

// namespaceOf informer number i.
func namespaceOf(i int) string { return fmt.Sprintf("restart-%03d", i) }

// onceEach counts each change of the object of a namespace once: an informer that lists again may deliver it for a second time.
func onceEach(handler *tally) toolscache.ResourceEventHandler {
	var last sync.Map
	note := func(object any) {
		stamp := stampOf(object)
		before, seen := last.Swap(object.(metav1.Object).GetNamespace(), stamp)
		if !seen || stamp > before.(int64) {
			handler.note(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(_, object any) { note(object) },
	}
}
