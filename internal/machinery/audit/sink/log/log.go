// Package log writes audit events to a file or to standard output, one event per line.
package log

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
)

// Formats of a line.
const (
	FormatLegacy = "legacy"
	FormatJSON   = "json"
)

// Formats returns the formats in the order in which error messages list them.
func Formats() []string { return []string{FormatLegacy, FormatJSON} }

// Log is a sink.Backend.
type Log struct {
	format string
	report audit.Report

	mu  sync.Mutex // held while writing, so that lines are not mixed
	out io.Writer
}

// New returns a Log that writes to out in the given format.
func New(out io.Writer, format string, report audit.Report) *Log {
	return &Log{format: format, report: report, out: out}
}

// lines has buffers for reuse.
var lines = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Write implements sink.Backend.
func (l *Log) Write(_ context.Context, events []*audit.Event) bool {
	ok := true
	buf := lines.Get().(*bytes.Buffer)
	defer lines.Put(buf)
	for _, e := range events {
		buf.Reset()
		if l.format == FormatLegacy {
			buf.WriteString(audit.Line(e))
		} else {
			buf.Write(audit.AppendEvent(buf.AvailableBuffer(), e))
		}
		buf.WriteByte('\n')
		if err := l.line(buf.Bytes()); err != nil {
			l.report("log", err, []*audit.Event{e})
			ok = false
		}
	}
	return ok
}

func (l *Log) line(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.out.Write(b)
	return err
}
