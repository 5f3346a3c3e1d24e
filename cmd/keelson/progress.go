package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// progress shows how far a command is: as a bar on a terminal, otherwise as a line every ten seconds.
type progress struct {
	out      io.Writer
	what     string
	terminal bool
	// state returns how much is done, and the total; 0 if the total is unknown.
	state func() (done, total int64)
	// show formats an amount.
	show func(int64) string
	end  chan struct{}
	gone chan struct{}
}

// Times between two updates.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 10 * time.Second
)

// startProgress shows progress until stop is called.
func startProgress(out io.Writer, what string, show func(int64) string, state func() (done, total int64)) *progress {
	p := &progress{
		out: out, what: what, terminal: isTerminal(out), state: state, show: show,
		end: make(chan struct{}), gone: make(chan struct{}),
	}
	go p.run()
	return p
}

func (p *progress) run() {
	defer close(p.gone)
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	shown := false
	for {
		select {
		case <-p.end:
			if shown && p.terminal {
				fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", longestBar))
			}
			return
		case <-ticker.C:
			shown = true
			p.print()
		}
	}
}

// longestBar is the width of the line of the bar.
const longestBar = 79

func (p *progress) print() {
	done, total := p.state()
	line := p.what + ": " + p.show(done)
	if total > 0 {
		line += " of " + p.show(total)
	}
	if !p.terminal {
		fmt.Fprintln(p.out, line)
		return
	}
	if total > 0 {
		const width = 30
		full := int(min(done, total) * width / total)
		line = fmt.Sprintf("[%s%s] %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), line)
	}
	fmt.Fprintf(p.out, "\r%-*s", longestBar, line)
}

// stop ends the display and removes the bar.
func (p *progress) stop() {
	close(p.end)
	<-p.gone
}

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// megabytes formats an amount of bytes.
func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// keys formats a number of keys.
func keys(n int64) string { return fmt.Sprintf("%d keys", n) }

// sizeOf returns the size of a file, or of the files below a directory. What is missing has the size 0.
func sizeOf(path string) (size int64) {
	// Files come and go meanwhile, so errors are passed over.
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}

// counter counts the work of several goroutines.
type counter struct{ atomic.Int64 }

// of returns a function for progress.state. total is 0 if it is unknown.
func (c *counter) of(total int64) func() (int64, int64) {
	return func() (int64, int64) { return c.Load(), total }
}
