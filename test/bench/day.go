package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// daysCommand replays two days of a small cluster on servers whose clock it moves, and draws the space on the disk.
const daysCommand = "days"

// The cluster: 20 nodes renew a Lease every 10 s and report their status every 5 minutes; 5 components renew theirs every 2 s; 300 pods,
// of which one changes its status every minute, and 6 are replaced every half hour; an Event every 10 s.
const (
	dayNodes, dayComponents, dayPods = 20, 5, 300
	days                             = 2
	// dayTick is how far the clock moves at a time. The writes of that time are sent together.
	dayTick = time.Minute
	// daySample is the time between two looks at the disk.
	daySample = 20 * time.Minute
)

// replayed is the space on the disk during the replay.
type replayed struct {
	name   string
	values []float64 // bytes, one for each daySample
	writes int
	kept   float64 // bytes of the history before compression, at the end
}

// replayDays replays the days with several retentions and writes a picture to a file.
func replayDays(file string, out io.Writer) error {
	var all []*replayed
	for _, retention := range []string{"0", "24h"} {
		r, err := replay(retention)
		if err != nil {
			return err
		}
		all = append(all, r)
		half := len(r.values) / days
		fmt.Fprintf(out, "--history-retention=%s: %d writes a day, %.1f MB after a day, %.1f MB after two, "+
			"%.1f MB of history before compression\n", retention, r.writes/days, r.values[half-1]/megabyte, r.values[len(r.values)-1]/megabyte, r.kept/megabyte)
	}
	return os.WriteFile(file, plotDays(all), 0o644) //nolint:gosec // a picture for everybody
}

func replay(retention string) (*replayed, error) {
	dir, err := os.MkdirTemp("", "keelson-days-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const token = "days"
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",days,days,system:masters\n"), 0o600); err != nil {
		return nil, err
	}
	now := clock.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := config.Default()
	c.Storage.DataDir, c.Storage.HistoryRetention = filepath.Join(dir, "data"), []string{retention}
	c.Serving.Port, c.Authentication.TokenFile, c.Testing.Clock = 0, tokens, now
	c.Diagnostics.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := server.Start(context.Background(), c, server.Options{
		// A minute of the cluster takes a few milliseconds here.
		AdjustEngine: func(o *embedded.Options) { o.CompactInterval = 20 * time.Millisecond },
	})
	if err != nil {
		return nil, err
	}
	d := &day{clock: now, replayed: replayed{name: retention}}
	d.target, err = targetOf(s.URL(), token)
	if err == nil {
		err = d.run(filepath.Join(c.Storage.DataDir, "store"))
	}
	return &d.replayed, errors.Join(err, s.Stop(context.Background()))
}

func targetOf(address, token string) (*target, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return &target{address: u.Host, bearer: "Bearer " + token, pid: os.Getpid()}, nil
}

// day is a running replay.
type day struct {
	replayed
	target *target
	clock  *clock.Clock
	queue  []request
	next   int // the number of the next pod, and of the next Event
	minute int
}

func (d *day) run(store string) error {
	const core, leases = "/api/v1/namespaces/default/", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	for i := range dayNodes {
		d.post("/api/v1/nodes", fmt.Appendf(nil, `{"metadata":{"name":"node-%d"}}`, i))
		d.post(leases, leaseObject("node", i, d.clock.Now()))
	}
	for i := range dayComponents {
		d.post(leases, leaseObject("component", i, d.clock.Now()))
	}
	for range dayPods {
		d.createPod(core + "pods")
	}
	if err := d.send(); err != nil {
		return err
	}
	for d.minute = range int(days * 24 * time.Hour / dayTick) {
		d.clock.Advance(dayTick)
		for at := time.Duration(0); at < dayTick; at += 2 * time.Second {
			for i := range dayComponents {
				d.patch(leases+fmt.Sprintf("/component-%d", i), leaseObject("component", i, d.clock.Now().Add(at)))
			}
			if at%(10*time.Second) != 0 {
				continue
			}
			for i := range dayNodes {
				d.patch(leases+fmt.Sprintf("/node-%d", i), leaseObject("node", i, d.clock.Now().Add(at)))
			}
			d.next++
			d.post(core+"events", eventObject("default", d.next))
		}
		for i := range dayNodes / 5 {
			d.patch(fmt.Sprintf("/api/v1/nodes/node-%d/status", (d.minute*dayNodes/5+i)%dayNodes), fmt.Appendf(nil,
				`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, d.clock.Now().Format(time.RFC3339)))
		}
		d.patch(core+"pods/"+podName(d.minute%dayPods)+"/status", statusPatch(d.minute/dayPods+1))
		if err := d.send(); err != nil {
			return err
		}
		if err := d.replacePods(); err != nil {
			return err
		}
		if (d.minute+1)%int(daySample/dayTick) == 0 {
			time.Sleep(200 * time.Millisecond) // the store merges what it has given up
			d.values = append(d.values, float64(diskUsage(store)))
		}
	}
	return d.readKept()
}

// replacePods deletes some pods and creates them again, every half hour.
func (d *day) replacePods() error {
	const pods = "/api/v1/namespaces/default/pods"
	if d.minute%30 != 0 {
		return nil
	}
	number := func(i int) int { return (d.minute/30*6 + i) % dayPods }
	for i := range 6 {
		d.queue = append(d.queue, request{
			method: http.MethodDelete, path: pods + "/" + podName(number(i)) + "?gracePeriodSeconds=0", accept: jsonType,
		})
	}
	if err := d.send(); err != nil {
		return err
	}
	for i := range 6 {
		d.post(pods, podNumbered(number(i), dayPods))
	}
	return d.send()
}

// readKept reads the size of the history.
func (d *day) readKept() error {
	c, err := dial(d.target)
	if err != nil {
		return err
	}
	defer c.close()
	a, err := c.do(&request{method: http.MethodGet, path: "/metrics", accept: "*/*"}, requestTime)
	if err != nil {
		return err
	}
	values, err := samples(a.body, "keelson_history_bytes")
	if err == nil {
		d.kept = values[0]
	}
	return err
}

func (d *day) createPod(path string) {
	d.post(path, podNumbered(d.next, dayPods))
	d.next++
}

func (d *day) post(path string, body []byte) { d.queue = append(d.queue, *post(path, body)) }

func (d *day) patch(path string, body []byte) {
	d.queue = append(d.queue, request{
		method: http.MethodPatch, path: path, accept: jsonType, contentType: "application/strategic-merge-patch+json", body: body,
	})
}

// send sends the queue, and waits for the answers. Requests for an object are not sent in their order, which makes no difference here.
func (d *day) send() error {
	queue := d.queue
	d.queue = d.queue[:0]
	o, err := plan{inFlight: 16, connections: 1, count: len(queue), limit: writeTime,
		prepare: func(i int, r *request) { *r = queue[i] }}.run(d.target)
	if err != nil {
		return err
	}
	if o.failed > 0 || o.done < len(queue) {
		return fmt.Errorf("minute %d: %d of %d writes; %s", d.minute, o.done, len(queue), failures(o))
	}
	d.writes += len(queue)
	return nil
}

func leaseObject(kind string, i int, now time.Time) []byte {
	return fmt.Appendf(nil, `{"metadata":{"name":"%s-%d"},"spec":{"holderIdentity":"%s-%d","leaseDurationSeconds":40,"renewTime":%q}}`,
		kind, i, kind, i, now.UTC().Format("2006-01-02T15:04:05.000000Z"))
}

// diskUsage returns the size of all files below a directory, without the ballast file.
func diskUsage(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && !bytes.Contains([]byte(filepath.Base(path)), []byte("ballast")) {
			if info, err := e.Info(); err == nil { // otherwise it was deleted in the meantime
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

// plotDays draws the space over the time.
func plotDays(all []*replayed) []byte {
	const width, height, left, top, bottom = 960, 360, 80, 60, 40
	most := 0.0
	for _, r := range all {
		for _, v := range r.values {
			most = max(most, v)
		}
	}
	step := 1 << 20
	for float64(step)*8 < most {
		step *= 2
	}
	scale := (height - top - bottom) / most
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+
		"\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", width, height)
	fmt.Fprintf(&b, `<text x="10" y="20" font-size="15">Space on the disk: %d nodes, %d pods, %d writes a day</text>`+"\n",
		dayNodes, dayPods, all[0].writes/days)
	for v := 0; float64(v) <= most; v += step {
		y := height - bottom - float64(v)*scale
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e0e0e0"/><text x="%d" y="%.1f" text-anchor="end">%d MiB</text>`+"\n",
			left, y, width-10, y, left-8, y+4, v>>20)
	}
	for i, r := range all {
		at := 10 + i*260
		fmt.Fprintf(&b, `<rect x="%d" y="32" width="12" height="12" fill="%s"/><text x="%d" y="43">--history-retention=%s</text>`+"\n",
			at, barColors[i+1], at+18, r.name)
		fmt.Fprintf(&b, `<polyline fill="none" stroke-width="1.5" stroke="%s" points="`, barColors[i+1])
		for n, v := range r.values {
			fmt.Fprintf(&b, "%.1f,%.1f ", left+float64(n+1)/float64(len(r.values))*(width-left-10), height-bottom-v*scale)
		}
		fmt.Fprintln(&b, `"/>`)
	}
	for hour := 0; hour <= 24*days; hour += 6 {
		x := left + float64(hour)/(24*days)*(width-left-10)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#5f6368">%d h</text>`+"\n", x, height-bottom+18, hour)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
