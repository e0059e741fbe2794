package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

type queue = workqueue.TypedRateLimitingInterface[string]

// newQueue makes the peer's queue as its users have it. client-go's has no metrics, because its default provider counts
// nothing. controller-runtime's has Prometheus metrics, as always for a queue with a name.
func newQueue(limiter workqueue.TypedRateLimiter[string]) queue {
	if *peer == "client-go" {
		return workqueue.NewTypedRateLimitingQueue(limiter)
	}
	name := "peers"
	if *metrics == "off" {
		name = ""
	}
	return priorityqueue.New(name, func(opts *priorityqueue.Opts[string]) { opts.RateLimiter = limiter })
}

func controllerLimiter() workqueue.TypedRateLimiter[string] {
	if *peer == "client-go" {
		return workqueue.DefaultTypedControllerRateLimiter[string]()
	}
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second)
}

// crowd adds from -threads producers to as many workers, twice to the same queue, and reports the second time.
func crowd(isHot bool) (*report, error) {
	all := count(1_000_000)
	queue := newQueue(controllerLimiter())
	taken, done := make([]counter, *threads), make([]counter, *threads)
	for worker := range *threads {
		go func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				taken[worker].count()
				queue.Done(key)
				done[worker].count()
			}
		}()
	}
	until := func(producer int) int { return all * producer / *threads }
	tables := make([][]string, *threads)
	for producer := range tables {
		if isHot {
			tables[producer] = keyRange(0, hotKeys)
		} else {
			tables[producer] = keyRange(until(producer), until(producer+1))
		}
	}
	round := func(times int) span {
		var producers sync.WaitGroup
		begin := make(chan struct{})
		for producer, table := range tables {
			steps := until(producer+1) - until(producer)
			producers.Go(func() {
				<-begin
				for step := range steps {
					if isHot {
						queue.Add(table[hot(step, producer)])
					} else {
						queue.Add(table[step])
					}
				}
			})
		}
		watch := start()
		close(begin)
		producers.Wait()
		for {
			if isHot && queue.Len() == 0 && sum(taken) == sum(done) || !isHot && sum(done) == all*times {
				return watch.stop()
			}
			time.Sleep(500 * time.Microsecond)
		}
	}
	round(1)
	before := sum(done)
	used := round(2)
	runs, least := sum(done)-before, all
	if isHot {
		least = min(hotKeys, all)
	}
	if runs < least || runs > all {
		return nil, fmt.Errorf("%d runs of %d keys in %d adds", runs, least, all)
	}
	return newReport(all, used).extra("runs", float64(runs)), nil
}

// delayed adds keys that are due within five seconds, and measures how late each is handed out.
func delayed() (*report, error) {
	all := count(1_000_000)
	keys := keyRange(0, all)
	origin := time.Now()
	due := make([]atomic.Int64, all)
	late := make([][]int64, *threads)
	var seen, early atomic.Int64
	queue := newQueue(controllerLimiter())
	var workers sync.WaitGroup
	for worker := range late {
		mine := make([]int64, all)
		for i := range mine {
			mine[i] = 1
		}
		mine = mine[:0]
		workers.Go(func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					late[worker] = mine
					return
				}
				by := int64(time.Since(origin)) - due[number(key)].Load()
				if by < 0 {
					early.Add(1)
				}
				mine = append(mine, max(by, 0))
				last := seen.Add(1) == int64(all)
				queue.Forget(key)
				queue.Done(key)
				if last {
					queue.ShutDown()
				}
			}
		})
	}
	for i := range due {
		due[i].Store(1)
	}
	forgetPeak()
	before := resident()
	watch := start()
	for i, key := range keys {
		after := delay(i)
		due[i].Store(int64(time.Since(origin) + after))
		queue.AddAfter(key, after)
	}
	added := watch.stop()
	workers.Wait()
	used := watch.stop()
	memory := peak() - before
	var merged []int64
	for _, mine := range late {
		merged = append(merged, mine...)
	}
	if len(merged) != all {
		return nil, fmt.Errorf("%d of %d keys seen", len(merged), all)
	}
	return newReport(all, used).latency(merged).extra("mem_mb", memory).extra("add_secs", added.secs).
		extra("early", float64(early.Load())), nil
}

// limited measures a failure, and a success after it: on the limiter alone, or through the queue.
func limited() (*report, error) {
	keys := keyRange(0, count(1_000_000))
	var limiter workqueue.TypedRateLimiter[string]
	var prepare, when, forget func()
	switch *mode {
	case "", "limiter":
		limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second)
		prepare = func() {}
		when = func() {
			for _, key := range keys {
				limiter.When(key)
			}
		}
		forget = func() {
			for _, key := range keys {
				limiter.Forget(key)
			}
		}
	case "item":
		// A back-off so long that no key returns while others are measured.
		limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[string](1000*time.Second, 1_000_000*time.Second)
		queue := newQueue(limiter)
		prepare = func() {
			for _, key := range keys {
				queue.Add(key)
			}
			for range keys {
				queue.Get()
			}
		}
		when = func() {
			for _, key := range keys {
				queue.AddRateLimited(key)
				queue.Done(key)
			}
			queue.Len()
		}
		forget = func() {
			for _, key := range keys {
				queue.Forget(key)
				queue.Done(key)
			}
		}
	default:
		return nil, fmt.Errorf("-mode=%s: limiter or item", *mode)
	}
	var found *report
	last := keys[len(keys)-1]
	for range 2 {
		all := start()
		prepare()
		watch := start()
		when()
		failed := watch.stop()
		if limiter.NumRequeues(last) != 1 {
			return nil, fmt.Errorf("a failure was not counted")
		}
		prepare()
		watch = start()
		forget()
		forgotten := watch.stop()
		if limiter.NumRequeues(last) != 0 {
			return nil, fmt.Errorf("a failure was not forgotten")
		}
		each := func(seconds float64) float64 { return seconds * 1e9 / float64(len(keys)) }
		found = newReport(len(keys), all.stop()).
			extra("when_ns", each(failed.secs)).extra("forget_ns", each(forgotten.secs)).
			extra("when_cpu_ns", each(failed.cpu)).extra("forget_cpu_ns", each(forgotten.cpu))
	}
	return found, nil
}

// memory is the live bytes of the queue for each key that waits; the keys are allocated before.
func memory() (*report, error) {
	keys := keyRange(0, count(1_000_000))
	before := live()
	watch := start()
	queue := newQueue(controllerLimiter())
	for _, key := range keys {
		switch *mode {
		case "", "ready":
			queue.Add(key)
		case "delayed":
			queue.AddAfter(key, time.Hour)
		default:
			return nil, fmt.Errorf("-mode=%s: ready or delayed", *mode)
		}
	}
	ready := queue.Len()
	if *mode == "delayed" {
		// The queue receives delayed keys in its own goroutine.
		time.Sleep(200 * time.Millisecond)
		ready += len(keys)
	}
	if ready != len(keys) {
		return nil, fmt.Errorf("%d keys were added, %d are queued", len(keys), ready)
	}
	used := watch.stop()
	bytes := (live() - before) / float64(len(keys))
	runtime.KeepAlive(queue)
	runtime.KeepAlive(keys)
	return newReport(len(keys), used).heap(bytes), nil
}

// starve counts how often each key runs when every run requests the next one at once.
func starve() (*report, error) {
	keys := keyRange(0, count(1000))
	runs := make([]atomic.Int64, len(keys))
	limit := int64(10 * len(keys))
	var all atomic.Int64
	queue := newQueue(controllerLimiter())
	watch := start()
	for _, key := range keys {
		queue.Add(key)
	}
	var workers sync.WaitGroup
	var shutdown sync.Once // controller-runtime's panics the second time
	for range *threads {
		workers.Go(func() {
			for {
				key, closed := queue.Get()
				if closed {
					return
				}
				if all.Add(1) > limit {
					shutdown.Do(queue.ShutDown)
					return
				}
				runs[number(key)].Add(1)
				if *work > 0 {
					time.Sleep(time.Duration(*work) * time.Microsecond)
				}
				queue.Add(key)
				queue.Done(key)
			}
		})
	}
	workers.Wait()
	used := watch.stop()
	least, most, ran := runs[0].Load(), int64(0), 0
	for i := range runs {
		times := runs[i].Load()
		least, most = min(least, times), max(most, times)
		if times > 0 {
			ran++
		}
	}
	return newReport(int(limit), used).extra("keys", float64(len(keys))).extra("ran", float64(ran)).
		extra("min_runs", float64(least)).extra("max_runs", float64(most)), nil
}
