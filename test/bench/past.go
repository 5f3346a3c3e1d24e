package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	// pastVersions is how many versions of the pods there are before their past is read.
	pastVersions = 1_000_000
	// pastWait limits the wait until the versions have left the window in which they can be watched (--history-window).
	pastWait = 10 * time.Minute
)

// readPast measures reads of the past: of pods as they were before 1,000,000 versions of them were written.
func (b *bench) readPast() error {
	if b.launcher == nil {
		return errors.New("give --start")
	}
	if err := b.fresh(); err != nil {
		return err
	}
	if err := b.needPods(); err != nil {
		return err
	}
	b.awaitIdle()
	then := time.Now().UTC().Format(time.RFC3339Nano)
	before, err := b.metrics("apiserver_storage_size_bytes{", "keelson_history_bytes")
	if err != nil {
		return err
	}
	pods := b.options.pods
	o, err := plan{inFlight: inFlight, connections: b.options.connections, count: pastVersions, limit: scaleLimit,
		prepare: func(i int, r *request) {
			*r = request{
				method: http.MethodPatch, path: b.podPath(i%pods) + "/status?fieldManager=bench-kubelet", accept: jsonType,
				contentType: "application/strategic-merge-patch+json", body: statusPatch(i/pods + 1),
			}
		}}.run(b.server)
	if err != nil {
		return err
	}
	if o.done < pastVersions {
		return fmt.Errorf("%d of %d versions were written; %s", o.done, pastVersions, failures(o))
	}
	after, err := b.awaitPast(before[1])
	if err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + b.pods + "/pods"
	timed := func(path string) (*timing, error) {
		return repeat(b.server, &request{method: http.MethodGet, path: path, accept: jsonType}, 20, listTime)
	}
	now, err := timed(path)
	if err != nil {
		return err
	}
	past, err := timed(path + "?asOf=" + then)
	if err != nil {
		return err
	}
	history, err := timed(b.podPath(pods/2) + "/history")
	if err != nil {
		return err
	}
	one, err := timed(b.podPath(pods/2) + "?asOf=" + then)
	if err != nil {
		return err
	}
	b.add(figure{Row: "past-list", Value: ms(past.wall), Floor: ms(now.wall),
		Detail: details(fmt.Sprintf("%.1f MB, %.1f MB", float64(past.size)/megabyte, float64(now.size)/megabyte),
			cpuDetail(past.cpu), short(now.cpu))})
	b.add(figure{Row: "past-history", Value: ms(history.wall),
		Detail: details(fmt.Sprintf("%.0f KB", float64(history.size)/kilobyte), cpuDetail(history.cpu), "a get of then "+short(one.wall))})
	b.add(figure{Row: "past-disk", Value: (after[0] - before[0]) / pastVersions / kilobyte,
		Detail: fmt.Sprintf("%.2f KB before compression, %.0f MB together", (after[1]-before[1])/pastVersions/kilobyte, after[0]/megabyte)})
	return nil
}

// awaitPast waits until the size of the history is above before and has not changed for a while, and returns the size of the store and
// of the history.
func (b *bench) awaitPast(before float64) (sizes []float64, err error) {
	const quiet = 45 * time.Second // more than the time between two compactions
	changed := time.Now()
	for end := time.Now().Add(pastWait); time.Now().Before(end); time.Sleep(time.Second) {
		next, err := b.metrics("apiserver_storage_size_bytes{", "keelson_history_bytes")
		if err != nil {
			return nil, err
		}
		if sizes == nil || next[1] != sizes[1] {
			changed = time.Now()
		}
		if sizes = next; sizes[1] > before && time.Since(changed) > quiet {
			return sizes, nil
		}
	}
	return nil, fmt.Errorf("after %v the versions are not all in the history, which has %.0f bytes", pastWait, sizes[1])
}

// metrics returns the values of the first samples in /metrics whose lines begin with the names.
func (b *bench) metrics(names ...string) ([]float64, error) {
	a, err := b.call(&request{method: http.MethodGet, path: "/metrics", accept: "*/*"})
	if err != nil {
		return nil, err
	}
	return samples(a.body, names...)
}

// samples returns the values of the first samples in a text of metrics whose lines begin with the names.
func samples(text []byte, names ...string) (values []float64, err error) {
	values = make([]float64, len(names))
	for i, name := range names {
		_, line, ok := bytes.Cut(text, []byte("\n"+name))
		line, _, _ = bytes.Cut(line, []byte{'\n'})
		if values[i], err = strconv.ParseFloat(string(line[bytes.LastIndexByte(line, ' ')+1:]), 64); !ok || err != nil {
			return nil, fmt.Errorf("/metrics has no %s", name)
		}
	}
	return values, nil
}
