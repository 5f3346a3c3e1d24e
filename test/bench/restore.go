package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// restoreCommand measures the restore of a copy.
const restoreCommand = "restore"

// changesTime is for how long objects are changed after they were made.
const changesTime = 3 * time.Minute

// each calls do for the numbers below n, or until a time has passed, with the connections of a copyRun.
func (c *copyRun) each(n int64, limit time.Duration, do func(i int64) error) (done int64, err error) {
	var next, failed atomic.Int64
	var first error
	var once sync.Once
	var running sync.WaitGroup
	began := time.Now()
	for range copyClients {
		running.Go(func() {
			for i := next.Add(1) - 1; i < n && time.Since(began) < limit && failed.Load() == 0; i = next.Add(1) - 1 {
				if err := do(i); err != nil {
					failed.Add(1)
					once.Do(func() { first = err })
				}
			}
		})
	}
	running.Wait()
	return min(next.Load(), n), first
}

// measureRestore makes objects and their copy, and restores it.
func measureRestore(ctx context.Context, program, etcdutl, count string, out io.Writer) error {
	objects, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keelson-restore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	place, data := filepath.Join(dir, "copy"), filepath.Join(dir, "restored")
	c, err := startCopyRun(ctx, program, dir, "--backup-to "+place)
	if err != nil {
		return err
	}
	const path = "/api/v1/namespaces/default/configmaps"
	_, err = c.each(int64(objects), time.Hour, func(i int64) error {
		_, err := c.send(http.MethodPost, path, "application/json", scaleObject(int(i)))
		return err
	})
	if err != nil {
		return errors.Join(err, c.stopAll())
	}
	changes, err := c.each(1<<40, changesTime, func(i int64) error {
		_, err := c.send(http.MethodPatch, path+"/"+scaleName(int(i)%objects), "application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"annotations":{"change":"%d"}}}`, i))
		return err
	})
	if err = errors.Join(err, c.stopAll()); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d objects and %d changes; the copy has %.0f MB in images and %.0f MB in segments\n", objects, changes,
		size(place, "*.snapshot"), size(place, "*.changes"))
	if err := timed(out, "keelson restore", program, "restore", "--from", place, "--data-dir", data); err != nil {
		return err
	}
	file, member := filepath.Join(dir, "etcd.snapshot"), filepath.Join(dir, "member")
	if err := timed(out, "keelson snapshot export-etcd", program, "snapshot", "export-etcd", file, "--data-dir", data); err != nil {
		return err
	}
	fmt.Fprintf(out, "the snapshot of etcd has %.0f MB, the store of Keelson %.0f MB\n", size(dir, "etcd.snapshot"), size(data, "*"))
	return timed(out, "etcdutl snapshot restore", etcdutl, "snapshot", "restore", file, "--data-dir", member)
}

// size returns the size of the files below a directory whose names match, in MB.
func size(dir, pattern string) float64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // a file that is gone does not count
		if err != nil || d.IsDir() {
			return nil
		}
		if matches, _ := filepath.Match(pattern, d.Name()); matches {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return float64(sum) / megabyte
}

// timed runs a program and prints what it took.
func timed(out io.Writer, name, program string, arguments ...string) error {
	cmd, began := exec.Command(program, arguments...), time.Now()
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, text)
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	fmt.Fprintf(out, "%s: %s, CPU %s, memory %.0f MB at most\n", name, time.Since(began).Round(100*time.Millisecond),
		(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(100*time.Millisecond), float64(used.Maxrss)/1024)
	return nil
}
