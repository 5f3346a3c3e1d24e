package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/bucket/buckettest"
)

// copyCommand measures what --backup-to costs a server, and what it sends to a bucket.
const copyCommand = "copy"

// The writes are status patches of copyPods pods, sent at a fixed rate over copyClients connections.
const (
	copyPods    = 1000
	copyClients = 16
	copyTime    = time.Minute
	// outageRate is the rate of the writes while the bucket hangs.
	outageRate = 300
)

// elsewhere is a bucket in memory in this process, which counts requests, and hangs if it is told to.
type elsewhere struct {
	service *buckettest.S3
	server  *httptest.Server
	hangs   atomic.Bool

	mu    sync.Mutex // guards the fields below
	count map[string]int
	sent  int64
}

func newElsewhere() *elsewhere {
	e := &elsewhere{service: buckettest.NewS3(), count: map[string]int{}}
	e.server = httptest.NewServer(e)
	return e
}

func (e *elsewhere) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.count[r.Method]++
	e.sent += max(r.ContentLength, 0)
	e.mu.Unlock()
	if e.hangs.Load() {
		<-r.Context().Done()
		return
	}
	e.service.ServeHTTP(w, r)
}

// take returns the requests by method and the bytes that were sent since it was called last.
func (e *elsewhere) take() (count map[string]int, sent int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	count, sent = e.count, e.sent
	e.count, e.sent = map[string]int{}, 0
	return count, sent
}

// paced is what writes at a fixed rate cost.
type paced struct {
	latencies []time.Duration // sorted
	cpu       time.Duration   // of the server, for each write
	failed    int
}

func (p *paced) quantile(q float64) time.Duration {
	return p.latencies[int(q*float64(len(p.latencies)-1))]
}

func (p *paced) String() string {
	return fmt.Sprintf("%d writes, CPU %s each, p50 %s, p99 %s, worst %s, %d failed", len(p.latencies), short(p.cpu),
		short(p.quantile(0.5)), short(p.quantile(0.99)), short(p.quantile(1)), p.failed)
}

// copyRun is a server that is loaded.
type copyRun struct {
	*instance
	client *http.Client
	next   atomic.Int64 // the number of the next write
}

func startCopyRun(ctx context.Context, program, dir string, flags string) (*copyRun, error) {
	l := &launcher{dir: dir, token: "benchtoken", command: program + " serve --data-dir {dir} --secure-port {port} --token-auth-file {tokens} " + flags}
	i, err := l.start(ctx)
	if err != nil {
		return nil, err
	}
	c := &copyRun{instance: i, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, //nolint:gosec // a server on this machine
	}}}
	for n := range copyPods {
		if _, err := c.send(http.MethodPost, "/api/v1/namespaces/default/pods", "application/json", podNumbered(n, copyPods)); err != nil {
			return nil, errors.Join(err, c.stopAll())
		}
	}
	return c, nil
}

func (c *copyRun) stopAll() error {
	c.stop()
	return os.RemoveAll(c.instance.dir)
}

func (c *copyRun) send(method, path, contentType string, body []byte) (text []byte, err error) {
	r, err := http.NewRequest(method, "https://"+c.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", c.bearer)
	r.Header.Set("Content-Type", contentType)
	answer, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	text, err = io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return text, err
}

// write sends writes at a rate for a time. A write counts from the moment at which it was due.
func (c *copyRun) write(rate int, last time.Duration) *paced {
	p, before := &paced{}, treeUsage(c.pid).cpu
	var mu sync.Mutex
	var running sync.WaitGroup
	began, due := time.Now(), atomic.Int64{}
	for range copyClients {
		running.Go(func() {
			for {
				at := began.Add(time.Duration(due.Add(1)-1) * time.Second / time.Duration(rate))
				if at.Sub(began) >= last {
					return
				}
				time.Sleep(time.Until(at))
				n := int(c.next.Add(1))
				_, err := c.send(http.MethodPatch, "/api/v1/namespaces/default/pods/"+podName(n%copyPods)+"/status",
					"application/strategic-merge-patch+json", statusPatch(n/copyPods+1))
				took := time.Since(at)
				mu.Lock()
				if p.latencies = append(p.latencies, took); err != nil {
					p.failed++
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	slices.Sort(p.latencies)
	p.cpu = (treeUsage(c.pid).cpu - before) / time.Duration(len(p.latencies))
	return p
}

// measureCopy measures a program with and without a copy in turn, at several rates, such as 10,300, and then with a bucket that hangs for a
// time, unless that is 0.
func measureCopy(ctx context.Context, program, rates, lasting string, out io.Writer) error {
	outage, err := time.ParseDuration(lasting)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keelson-copy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	e := newElsewhere()
	defer e.server.Close()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, "bench"); err != nil {
			return err
		}
	}
	place := 0
	with := func() string {
		place++
		return fmt.Sprintf("--backup-to s3://bench/%d --backup-s3-endpoint %s --backup-s3-region us-east-1", place, e.server.URL)
	}
	for text := range strings.SplitSeq(rates, ",") {
		rate, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		for range 3 {
			for _, flags := range []string{"", with()} {
				c, err := startCopyRun(ctx, program, dir, flags)
				if err != nil {
					return err
				}
				c.write(rate, 10*time.Second) // the first image is written
				e.take()
				p := c.write(rate, copyTime)
				count, sent := e.take()
				if err := c.stopAll(); err != nil {
					return err
				}
				if flags == "" {
					fmt.Fprintf(out, "%d/s without: %v\n", rate, p)
					continue
				}
				const hour = float64(time.Hour / copyTime)
				puts, gets := float64(count["PUT"]+count["POST"]), float64(count["GET"])
				// The list price of S3 Standard in us-east-1: $0.005 for 1,000 PUT or LIST, nothing for DELETE. All GETs are counted as LIST.
				fmt.Fprintf(out, "%d/s with a copy: %v; an hour: %.0f MB, %.0f PUT, %.0f GET and LIST, %.0f DELETE, $%.2f for requests\n", rate, p,
					float64(sent)/megabyte*hour, puts*hour, gets*hour, float64(count["DELETE"])*hour, (puts+gets)*hour*0.005/1000)
			}
		}
	}
	if outage == 0 {
		return nil
	}
	return measureOutage(ctx, program, dir, with(), e, outage, out)
}

// measureOutage lets the bucket hang under load.
func measureOutage(ctx context.Context, program, dir, flags string, e *elsewhere, outage time.Duration, out io.Writer) error {
	c, err := startCopyRun(ctx, program, dir, flags)
	if err != nil {
		return err
	}
	report := func(what string, p *paced) {
		var disk int64
		_ = filepath.WalkDir(filepath.Join(c.instance.dir, "data"), func(path string, _ os.DirEntry, _ error) error {
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() { // files go meanwhile
				disk += info.Size()
			}
			return nil
		})
		fmt.Fprintf(out, "%s: %v; memory %.0f MB, disk %.0f MB\n", what, p, float64(treeUsage(c.pid).anonymous)/megabyte, float64(disk)/megabyte)
	}
	c.write(outageRate, 10*time.Second)
	report("before", c.write(outageRate, copyTime))
	e.hangs.Store(true)
	for left := outage; left > 0; left -= outage / 4 {
		report("the bucket hangs", c.write(outageRate, outage/4))
	}
	e.hangs.Store(false)
	e.server.CloseClientConnections()
	began := time.Now()
	behind := func() (revisions float64, err error) {
		text, err := c.send(http.MethodGet, "/metrics", "", nil)
		if err != nil {
			return 0, err
		}
		values, err := samples(text, "keelson_backup_behind_revisions ")
		return values[0], err
	}
	most, caught := 0.0, time.Duration(0)
	for time.Since(began) < 5*time.Minute {
		n, err := behind()
		if err != nil {
			return errors.Join(err, c.stopAll())
		}
		if n > most {
			most, began = n, time.Now()
		}
		if n == 0 {
			caught = time.Since(began)
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Fprintf(out, "it answers again: %.0f revisions caught up in %s, %.0f/s\n", most, short(caught), most/max(caught.Seconds(), 0.001))
	report("after", c.write(outageRate, copyTime))
	return c.stopAll()
}
