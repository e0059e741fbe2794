package main

import (
	"fmt"
	"time"
)

// fleet is many informers of few objects each, in one process. They share the transport, as those of one configuration do.
func fleet() (*report, error) {
	informers := count(200)
	if *peer != "client-go" && *peer != "client-go-protobuf" {
		return nil, skip("the cache of controller-runtime has one informer a kind")
	}
	if _, err := order("reset", fmt.Sprintf("n=%d", *each)); err != nil {
		return nil, err
	}
	streams, err := streaming()
	if err != nil {
		return nil, err
	}
	forgetPeak()
	watch := start()
	all := make([]*running, informers)
	for i := range all {
		r, err := startCache(streams, nil)
		if err != nil {
			return nil, err
		}
		all[i] = r
	}
	for _, r := range all {
		r.waitSynced()
	}
	used := watch.stop()
	for _, r := range all {
		if r.len() != *each {
			return nil, fmt.Errorf("%d of %d objects", r.len(), *each)
		}
	}
	time.Sleep(time.Second)
	most, held, own := peak(), resident(), anonymous()
	watch = start()
	time.Sleep(time.Duration(*idle * float64(time.Second)))
	quiet := watch.stop()
	for _, r := range all {
		r.stop()
	}
	found := newReport(informers, used)
	found.fields["rss_mb"] = most
	return found.extra("resident_mb", held).extra("own_mb", own).extra("idle_us", quiet.cpu/quiet.secs*1e6), nil
}
