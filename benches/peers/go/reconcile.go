package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// progress records which objects were reconciled.
type progress struct {
	// versions that were seen last, by number.
	versions []atomic.Uint64
	// above: only versions above this one count.
	above, newest atomic.Uint64
	done, runs    atomic.Int64
	// written: objects up to this version have to be written once; 0: none.
	written uint64
}

// statusPatch is what a reconcile writes.
const statusPatch = `{"status":{"phase":"active"}}`

func (p *progress) note(object metav1.Object) {
	version := versionOf(object)
	above := p.above.Load()
	last := p.versions[number(object.GetName())].Swap(version)
	for newest := p.newest.Load(); version > newest && !p.newest.CompareAndSwap(newest, version); {
		newest = p.newest.Load()
	}
	p.runs.Add(1)
	if last <= above && version > above {
		p.done.Add(1)
	}
}

func (p *progress) wait() error {
	deadline := time.Now().Add(2 * time.Minute)
	for int(p.done.Load()) < len(p.versions) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d objects were reconciled", p.done.Load(), len(p.versions))
		}
		time.Sleep(500 * time.Microsecond)
	}
	return nil
}

// reconciled runs reconciles from the start, or after a burst of changes. They do nothing, or write a status once.
func reconciled(burst, write bool) (*report, error) {
	if write && *peer == "client-go" {
		return nil, skip("its own example writes nothing")
	}
	objects := count(10_000)
	answer, err := order("reset", fmt.Sprintf("n=%d", objects))
	if err != nil {
		return nil, err
	}
	p := &progress{versions: make([]atomic.Uint64, objects)}
	if write {
		if p.written, err = strconv.ParseUint(answer, 10, 64); err != nil {
			return nil, err
		}
		p.above.Store(p.written)
	}
	begin := runClientGo
	if *peer == "controller-runtime" {
		begin = runControllerRuntime
	} else if *peer != "client-go" {
		return nil, fmt.Errorf("-peer=%s: client-go or controller-runtime", *peer)
	}
	watch := start()
	stop, err := begin(p)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := p.wait(); err != nil {
		return nil, err
	}
	used, runs := watch.stop(), p.runs.Load()
	if burst {
		p.above.Store(p.newest.Load())
		p.done.Store(0)
		watch = start()
		if _, err := order("burst", fmt.Sprintf("n=%d", objects)); err != nil {
			return nil, err
		}
		if err := p.wait(); err != nil {
			return nil, err
		}
		used, runs = watch.stop(), p.runs.Load()-runs
	}
	return newReport(objects, used).extra("runs", float64(runs)), nil
}

// runClientGo is the loop of client-go's own example: an informer, a queue, workers.
func runClientGo(p *progress) (func(), error) {
	r, err := startClientGo(clientConfig(), nil)
	if err != nil {
		return nil, err
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	enqueue := func(object any) {
		key, err := toolscache.MetaNamespaceKeyFunc(object)
		if err != nil {
			fail(err)
		}
		queue.Add(key)
	}
	_, err = r.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
	})
	if err != nil {
		return nil, err
	}
	r.waitSynced()
	var workers sync.WaitGroup
	for range *threads {
		workers.Go(func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				namespace, name, _ := strings.Cut(key, "/")
				if object := r.get(namespace, name); object != nil {
					p.note(object)
				}
				queue.Forget(key)
				queue.Done(key)
			}
		})
	}
	return func() {
		queue.ShutDown()
		workers.Wait()
		r.stop()
	}, nil
}

// runControllerRuntime is a manager with one controller.
func runControllerRuntime(p *progress) (func(), error) {
	object, _, err := objects()
	if err != nil {
		return nil, err
	}
	ctrl.SetLogger(logr.Discard())
	mapper := func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(), nil }
	manager, err := ctrl.NewManager(clientConfig(), ctrl.Options{
		Scheme: newScheme(), MapperProvider: mapper, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, err
	}
	writer := manager.GetClient()
	patch := client.RawPatch(types.MergePatchType, []byte(statusPatch))
	reconciler := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		into := object()
		if err := writer.Get(ctx, request.NamespacedName, into); err != nil {
			return reconcile.Result{}, err
		}
		p.note(into)
		if versionOf(into) <= p.written {
			return reconcile.Result{}, writer.Status().Patch(ctx, into, patch)
		}
		return reconcile.Result{}, nil
	})
	err = ctrl.NewControllerManagedBy(manager).For(object()).
		WithOptions(controller.Options{MaxConcurrentReconciles: *threads}).Complete(reconciler)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := manager.Start(ctx); err != nil {
			fail(err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}
