package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// hotKeys is how many keys the hot scenario has.
const hotKeys = 1000

// key number i, 23 bytes.
func key(i int) string { return fmt.Sprintf("ns-%04d/name-%010d", i%100, i) }

// number of a key.
func number(key string) int {
	number := 0
	for _, digit := range []byte(key[len(key)-10:]) {
		number = number*10 + int(digit-'0')
	}
	return number
}

func keyRange(first, last int) []string {
	keys := make([]string, 0, last-first)
	for i := first; i < last; i++ {
		keys = append(keys, key(i))
	}
	return keys
}

// hot is the hot key that a producer adds at its step.
func hot(step, producer int) int { return (step*7 + producer*251) % hotKeys }

// delay of key i, when all are spread over five seconds.
func delay(i int) time.Duration {
	return time.Duration(uint64(i)*2654435761%5_000_000) * time.Microsecond
}

// span is a stretch of time and the processor time used in it, in seconds.
type span struct{ secs, cpu, sys float64 }

type stopwatch struct {
	started  time.Time
	cpu, sys float64
}

func start() stopwatch {
	cpu, sys := processor()
	return stopwatch{time.Now(), cpu, sys}
}

func (s stopwatch) stop() span {
	secs := time.Since(s.started).Seconds()
	cpu, sys := processor()
	return span{secs, cpu - s.cpu, sys - s.sys}
}

func processor() (cpu, sys float64) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	sys = seconds(usage.Stime)
	return seconds(usage.Utime) + sys, sys
}

func seconds(time syscall.Timeval) float64 { return float64(time.Sec) + float64(time.Usec)/1e6 }

// status reads a field of /proc/self/status that is in kB, as MB of 10⁶ bytes.
func status(field string) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field); ok {
			kibibytes, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				fail(err)
			}
			return kibibytes * 1024 / 1e6
		}
	}
	fail(fmt.Errorf("no %s in /proc/self/status", field))
	return 0
}

func resident() float64 { return status("VmRSS:") }
func peak() float64     { return status("VmHWM:") }

// anonymous is resident memory without that of files: without the code of the program.
func anonymous() float64 { return status("RssAnon:") }

// forgetPeak returns unused memory and resets peak to the memory that is resident then.
func forgetPeak() {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		fail(err)
	}
}

// live bytes of the heap, after a garbage collection.
func live() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// report is the line that is printed.
type report struct {
	fields map[string]any
	extras map[string]float64
}

func newReport(count int, s span) *report {
	extras := map[string]float64{}
	return &report{map[string]any{
		"n": count, "secs": s.secs, "rate": float64(count) / s.secs, "cpu": s.cpu, "sys": s.sys,
		"rss_mb": peak(), "extra": extras,
	}, extras}
}

func (r *report) heap(bytes float64) *report {
	r.fields["heap_obj"] = bytes
	return r
}

func (r *report) latency(nanoseconds []int64) *report {
	slices.Sort(nanoseconds)
	for name, share := range map[string]float64{"p50_us": 0.5, "p99_us": 0.99, "max_us": 1} {
		r.fields[name] = quantile(nanoseconds, share)
	}
	return r
}

func (r *report) extra(name string, value float64) *report {
	r.extras[name] = value
	return r
}

func print(fields map[string]any) {
	line, err := json.Marshal(fields)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

// counter of one goroutine, on its own cache line.
type counter struct {
	value atomic.Int64
	_     [120]byte
}

// count one more. Only one goroutine may count here.
func (c *counter) count() { c.value.Store(c.value.Load() + 1) }

func sum(counters []counter) int {
	all := 0
	for i := range counters {
		all += int(counters[i].value.Load())
	}
	return all
}
