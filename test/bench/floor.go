package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// floorCommand makes this program the floor server. No API server on Go's net/http can be faster than it. Like the
// measured server, it runs as a process of its own.
const floorCommand = "floor-server"

// chunk is the number of bytes in one Write to the transport.
const chunk = 128 << 10

// floorServer serves:
//
//	GET /bytes?n=N                     N bytes from memory
//	POST /commit?n=N                   the same after a synced Pebble batch of the body
//	POST /emit                         the body becomes an event
//	GET /watch                         the events from now on
//	GET /pebble?n=&size=&inflight=     commits alone, answered as a commits
//	GET /fdatasync?n=                  writes of 4 KiB and fdatasync, answered as a commits
//
// and the writes of writeFloor.
type floorServer struct {
	dir string
	db  *pebble.DB
	key atomic.Uint64

	mu sync.Mutex
	// These fields are guarded by mu. Bytes of log do not change after they were appended.
	log   []byte
	woken chan struct{}
	bytes []byte
}

// commits is the result of measuring durable writes.
type commits struct {
	Rate float64       `json:"rate"`
	P50  time.Duration `json:"p50"`
	P99  time.Duration `json:"p99"`
}

// serveFloor runs until its standard input ends, which happens when the benchmark ends.
func serveFloor(dir string) error {
	db, err := pebble.Open(filepath.Join(dir, "pebble"), &pebble.Options{Logger: quiet{}, MemTableSize: 64 << 20})
	if err != nil {
		return err
	}
	f := &floorServer{dir: dir, db: db, woken: make(chan struct{}), log: make([]byte, 0, 16<<20)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes", f.serveBytes)
	mux.HandleFunc("POST /commit", f.serveCommit)
	mux.HandleFunc("POST /emit", f.serveEmit)
	mux.HandleFunc("GET /watch", f.serveWatch)
	newWriteFloor(f).handle(mux)
	mux.HandleFunc("GET /pebble", func(w http.ResponseWriter, r *http.Request) {
		f.serveCommits(w, f.commits(number(r, "n"), number(r, "size"), number(r, "inflight")))
	})
	mux.HandleFunc("GET /fdatasync", func(w http.ResponseWriter, r *http.Request) {
		c, err := f.syncs(number(r, "n"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		f.serveCommits(w, c)
	})
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	s := &http.Server{
		Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: dialTimeout, ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = s.Close()
	}()
	if err := s.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return db.Close()
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func number(r *http.Request, name string) int {
	n, _ := strconv.Atoi(r.URL.Query().Get(name)) // 0 if there is no number
	return n
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// content returns n bytes that are already in memory.
func (f *floorServer) content(n int) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.bytes) < n {
		f.bytes = make([]byte, n)
		_, _ = rand.Read(f.bytes) // never fails
	}
	return f.bytes[:n]
}

func (f *floorServer) serveBytes(w http.ResponseWriter, r *http.Request) {
	f.write(w, f.content(number(r, "n")))
}

func (f *floorServer) write(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	if len(b) <= chunk {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	}
	for c := range slices.Chunk(b, chunk) {
		if _, err := w.Write(c); err != nil {
			return
		}
	}
}

func (f *floorServer) serveCommit(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = f.commit(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f.write(w, f.content(number(r, "n")))
}

// commit makes one value durable. Pebble syncs once for all commits that wait.
func (f *floorServer) commit(value []byte) error {
	return f.db.Set(binary.BigEndian.AppendUint64(nil, f.key.Add(1)), value, pebble.Sync)
}

func (f *floorServer) serveEmit(_ http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, body...)
	close(f.woken)
	f.woken = make(chan struct{})
}

func (f *floorServer) serveWatch(w http.ResponseWriter, r *http.Request) {
	flusher := w.(http.Flusher)
	flusher.Flush()
	f.mu.Lock()
	at := len(f.log)
	f.mu.Unlock()
	for {
		f.mu.Lock()
		events, woken := f.log[at:], f.woken
		f.mu.Unlock()
		if len(events) > 0 {
			if _, err := w.Write(events); err != nil {
				return
			}
			flusher.Flush()
			at += len(events)
			continue
		}
		select {
		case <-woken:
		case <-r.Context().Done():
			return
		}
	}
}

func (f *floorServer) serveCommits(w http.ResponseWriter, c commits) {
	_ = json.NewEncoder(w).Encode(c) // the client may have disconnected
}

// commits makes n values durable, with inFlight commits at a time.
func (f *floorServer) commits(n, size, inFlight int) commits {
	value := f.content(size)
	times := make([]time.Duration, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range inFlight {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				t := time.Now()
				if err := f.commit(value); err != nil {
					return
				}
				times[i] = time.Since(t)
			}
		})
	}
	wg.Wait()
	return summary(times, time.Since(start))
}

func summary(times []time.Duration, wall time.Duration) commits {
	slices.Sort(times)
	if len(times) == 0 {
		return commits{}
	}
	return commits{Rate: float64(len(times)) / wall.Seconds(), P50: times[len(times)/2], P99: times[len(times)*99/100]}
}

// syncs writes one block n times into a file that already has the size, as in a preallocated log.
func (f *floorServer) syncs(n int) (commits, error) {
	file, err := os.Create(filepath.Join(f.dir, "fdatasync"))
	if err != nil {
		return commits{}, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	const block = 4096
	if _, err := file.Write(make([]byte, n*block)); err != nil {
		return commits{}, err
	}
	if err := file.Sync(); err != nil {
		return commits{}, err
	}
	times := make([]time.Duration, n)
	start := time.Now()
	for i := range times {
		t := time.Now()
		if _, err := file.WriteAt(f.content(block), int64(i)*block); err != nil {
			return commits{}, err
		}
		if err := dataSync(file); err != nil {
			return commits{}, err
		}
		times[i] = time.Since(t)
	}
	return summary(times, time.Since(start)), nil
}

// floorProcess is a floor server that this process has started.
type floorProcess struct {
	target
	cmd   *exec.Cmd
	stdin io.WriteCloser
	dir   string
}

// startFloor starts a floor server with its files in dir.
func startFloor(dir string) (*floorProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &floorProcess{dir: dir, cmd: exec.Command(self, floorCommand, dir)}
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the floor server did not start: %w", err), p.cmd.Process.Kill(), p.cmd.Wait())
	}
	p.address, p.pid = strings.TrimSpace(line), p.cmd.Process.Pid
	return p, nil
}

func (p *floorProcess) stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill() // its data is deleted
	_ = p.cmd.Wait()
}

// commitsOf requests one of the floor server's own measurements.
func (p *floorProcess) commitsOf(path string) (commits, error) {
	var c commits
	conn, err := dial(&p.target)
	if err != nil {
		return c, err
	}
	defer conn.close()
	a, err := conn.do(&request{method: http.MethodGet, path: path}, deliverTime)
	if err != nil {
		return c, err
	}
	if a.status != http.StatusOK {
		return c, fmt.Errorf("%s: %d %s", path, a.status, a.body)
	}
	return c, json.Unmarshal(a.body, &c)
}

// commitsAlone measures synced Pebble commits of a size and returns the better of two rounds, because a disturbed
// measurement would not be a floor.
func (p *floorProcess) commitsAlone(size int) (commits, error) {
	path := fmt.Sprintf("/pebble?n=10000&size=%d&inflight=%d", size, inFlight)
	first, err := p.commitsOf(path)
	if err != nil {
		return commits{}, err
	}
	second, err := p.commitsOf(path)
	if second.Rate > first.Rate {
		return second, err
	}
	return first, err
}
