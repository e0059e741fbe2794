package main

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// namespaces is how many namespaces the objects are in.
const namespaces = 100

// tally is the objects and changes that a handler received.
type tally struct {
	seen atomic.Int64
	// late is the delay of each, in nanoseconds, if it is measured.
	timed bool
	mutex sync.Mutex
	late  []int64
}

func (t *tally) note(object any) {
	if t.timed {
		if stamp := stampOf(object); stamp > 0 {
			late := max(time.Now().UnixNano()-stamp*1000, 0)
			t.mutex.Lock()
			t.late = append(t.late, late)
			t.mutex.Unlock()
		}
	}
	t.seen.Add(1)
}

func (t *tally) wait(until int) error {
	deadline := time.Now().Add(2 * time.Minute)
	for int(t.seen.Load()) < until {
		if time.Now().After(deadline) {
			return fmt.Errorf("a handler received %d of %d", t.seen.Load(), until)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// order sends an order to the canned server.
func order(what, query string) (string, error) {
	address := fmt.Sprintf("%s/control/%s?kind=%s&%s", *server, what, *kindName, query)
	answer, err := http.Post(address, "", nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, answer.Status, text)
	}
	return string(text), err
}

func serverCPU() float64 {
	text, err := order("cpu", "")
	if err != nil {
		fail(err)
	}
	cpu, err := strconv.ParseFloat(text, 64)
	if err != nil {
		fail(err)
	}
	return cpu
}

func streaming() (bool, error) {
	switch *mode {
	case "", "list":
		return false, nil
	case "watchlist":
		return true, nil
	}
	return false, fmt.Errorf("-mode=%s: list or watchlist", *mode)
}

// started is a cache that holds all objects, and whose handlers have received them.
func started(objects int, handlers []*tally) (*running, error) {
	if _, err := order("reset", fmt.Sprintf("n=%d", objects)); err != nil {
		return nil, err
	}
	streams, err := streaming()
	if err != nil {
		return nil, err
	}
	r, err := startCache(streams, handlers)
	if err != nil {
		return nil, err
	}
	r.waitSynced()
	if r.len() != objects {
		return nil, fmt.Errorf("%d of %d objects", r.len(), objects)
	}
	for _, handler := range handlers {
		if err := handler.wait(objects); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// synced runs twice: the first run measures memory, the second one speed, with memory that was touched.
func synced() (*report, error) {
	objects := count(100_000)
	streams, err := streaming()
	if err != nil {
		return nil, err
	}
	if _, err := order("reset", fmt.Sprintf("n=%d", objects)); err != nil {
		return nil, err
	}
	before := live()
	forgetPeak()
	watch := start()
	first, err := startCache(streams, nil)
	if err != nil {
		return nil, err
	}
	first.waitSynced()
	cold := watch.stop()
	if first.len() != objects {
		return nil, fmt.Errorf("%d of %d objects", first.len(), objects)
	}
	most, settled := peak(), resident()
	bytes := (live() - before) / float64(objects)
	first.stop()
	first = nil
	runtime.GC()
	serverBefore := serverCPU()
	faults := minorFaults()
	watch = start()
	second, err := startCache(streams, nil)
	if err != nil {
		return nil, err
	}
	second.waitSynced()
	used := watch.stop()
	faults = minorFaults() - faults
	serverUsed := serverCPU() - serverBefore
	if second.len() != objects {
		return nil, fmt.Errorf("%d of %d objects", second.len(), objects)
	}
	found := newReport(objects, used).heap(bytes)
	found.fields["rss_mb"] = most
	return found.extra("settled_mb", settled).extra("cold_secs", cold.secs).extra("cold_cpu", cold.cpu).
		extra("server_cpu", serverUsed).extra("faults", faults), nil
}

func minorFaults() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return float64(usage.Minflt)
}

// steady is a burst of changes, until every handler has all. A smaller one runs before and is not measured.
func steady() (*report, error) {
	changes := *events
	if changes == 0 {
		changes = 200_000
	}
	tallies := make([]*tally, *handlers)
	for i := range tallies {
		tallies[i] = &tally{}
	}
	r, err := started(count(20_000), tallies)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	burst := func(changes int) (span, error) {
		until := int(tallies[0].seen.Load()) + changes
		watch := start()
		if _, err := order("burst", fmt.Sprintf("n=%d", changes)); err != nil {
			return span{}, err
		}
		for _, handler := range tallies {
			if err := handler.wait(until); err != nil {
				return span{}, err
			}
		}
		return watch.stop(), nil
	}
	if _, err := burst(changes / 10); err != nil {
		return nil, err
	}
	before := serverCPU()
	used, err := burst(changes)
	if err != nil {
		return nil, err
	}
	return newReport(changes, used).extra("server_cpu", serverCPU()-before), nil
}

// latency of changes at an even rate.
func latency() (*report, error) {
	each := *rate
	if each == 0 {
		each = 5000
	}
	changes := *events
	if changes == 0 {
		changes = 5 * each
	}
	objects := count(20_000)
	handler := &tally{timed: true}
	r, err := started(objects, []*tally{handler})
	if err != nil {
		return nil, err
	}
	defer r.stop()
	if _, err := order("burst", fmt.Sprintf("n=%d&rate=%d", each/2, each)); err != nil {
		return nil, err
	}
	if err := handler.wait(objects + each/2); err != nil {
		return nil, err
	}
	handler.mutex.Lock()
	handler.late = make([]int64, 0, changes)
	handler.mutex.Unlock()
	watch := start()
	if _, err := order("burst", fmt.Sprintf("n=%d&rate=%d", changes, each)); err != nil {
		return nil, err
	}
	if err := handler.wait(objects + each/2 + changes); err != nil {
		return nil, err
	}
	used := watch.stop()
	if len(handler.late) < changes {
		return nil, skip("the stored form of this peer does not contain the time of an object")
	}
	return newReport(changes, used).latency(handler.late), nil
}

// name is a key, divided into namespace and name.
type name struct{ namespace, name string }

func names(objects int) []name {
	all := make([]name, objects)
	for i := range all {
		namespace, rest, _ := strings.Cut(key(i), "/")
		all[i] = name{namespace, rest}
	}
	return all
}

// xorshift gives pseudo-random numbers.
type xorshift uint64

func newRandom(seed int) *xorshift {
	state := xorshift(0x9e3779b97f4a7c15 ^ uint64(seed+1))
	return &state
}

func (x *xorshift) next() int {
	state := uint64(*x)
	state ^= state << 13
	state ^= state >> 7
	state ^= state << 17
	*x = xorshift(state)
	return int(state >> 11)
}

func gets() (*report, error) {
	objects := count(100_000)
	all := names(objects)
	return reads(objects, func(r *running, random int) bool {
		key := all[random%objects]
		return r.get(key.namespace, key.name) != nil
	})
}

func lists() (*report, error) {
	objects := count(100_000)
	var each [namespaces]string
	for i := range each {
		each[i] = fmt.Sprintf("ns-%04d", i)
	}
	return reads(objects, func(r *running, random int) bool {
		number := random % namespaces
		return r.list(each[number]) == (objects+namespaces-1-number)/namespaces
	})
}

// reads at random, for two seconds on each of -threads threads.
func reads(objects int, read func(*running, int) bool) (*report, error) {
	r, err := started(objects, nil)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	runtime.GC()
	var over, wrong atomic.Bool
	made := make([]counter, *threads)
	var readers sync.WaitGroup
	watch := start()
	for thread := range *threads {
		readers.Go(func() {
			random := newRandom(thread)
			for !over.Load() {
				if !read(r, random.next()) {
					wrong.Store(true)
					return
				}
				made[thread].count()
			}
		})
	}
	time.Sleep(time.Duration(*secs * float64(time.Second)))
	over.Store(true)
	readers.Wait()
	used := watch.stop()
	if wrong.Load() {
		return nil, fmt.Errorf("a read was wrong after %d reads", sum(made))
	}
	return newReport(sum(made), used), nil
}

// relist reads at an even pace while all objects are listed again, and before, for comparison.
func relist() (*report, error) {
	objects := count(100_000)
	r, err := started(objects, nil)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	all := names(objects)
	random := newRandom(1)
	// A thread that sleeps in the kernel wakes up on time; a goroutine may wake up a millisecond late.
	runtime.LockOSThread()
	paced := func(over func() bool) ([]int64, error) {
		took := make([]int64, 0, 1<<20)
		for due := time.Now(); !over(); {
			due = due.Add(100 * time.Microsecond)
			if wait := time.Until(due); wait > 0 {
				timespec := syscall.NsecToTimespec(int64(wait))
				_ = syscall.Nanosleep(&timespec, nil)
			}
			key := all[random.next()%objects]
			if r.get(key.namespace, key.name) == nil {
				return nil, fmt.Errorf("an object was missing for a moment")
			}
			took = append(took, int64(time.Since(due)))
		}
		return took, nil
	}
	runtime.GC()
	time.Sleep(500 * time.Millisecond)
	watch := start()
	ends := time.Now().Add(2 * time.Second)
	quiet, err := paced(func() bool { return time.Now().After(ends) })
	if err != nil {
		return nil, err
	}
	control := watch.stop()
	forgetPeak()
	before := resident()
	first := all[0]
	version := r.version(first.namespace, first.name)
	serverBefore := serverCPU()
	watch = start()
	if _, err := order("expire", "touch=1"); err != nil {
		return nil, err
	}
	ends = time.Now().Add(2 * time.Minute)
	busy, err := paced(func() bool {
		return r.version(first.namespace, first.name) > version || time.Now().After(ends)
	})
	if err != nil {
		return nil, err
	}
	used := watch.stop()
	serverUsed := serverCPU() - serverBefore
	if r.version(first.namespace, first.name) == version {
		return nil, fmt.Errorf("the change was not seen within two minutes")
	}
	if r.len() != objects {
		return nil, fmt.Errorf("%d of %d objects", r.len(), objects)
	}
	ends = time.Now().Add(300 * time.Millisecond)
	after, err := paced(func() bool { return time.Now().After(ends) })
	if err != nil {
		return nil, err
	}
	most := peak()
	busy = append(busy, after...)
	found := newReport(objects, used).latency(busy)
	found.fields["rss_mb"] = most
	slices.Sort(quiet)
	cpu := used.cpu - control.cpu/control.secs*used.secs
	return found.extra("p999_us", quantile(busy, 0.999)).extra("control_p999_us", quantile(quiet, 0.999)).
		extra("control_max_us", quantile(quiet, 1)).extra("mem_ratio", most/before).
		extra("cpu_obj_us", cpu*1e6/float64(objects)).extra("server_cpu", serverUsed), nil
}

// quantile of sorted nanoseconds, in µs: the smallest that at least this share of all does not exceed.
func quantile(nanoseconds []int64, share float64) float64 {
	rank := int(math.Ceil(share * float64(len(nanoseconds))))
	return float64(nanoseconds[min(max(rank-1, 0), len(nanoseconds)-1)]) / 1e3
}
