package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// logOptions configure the log.
type logOptions struct {
	verbosity int
	format    string
	// files are the verbosities of source files: pattern=N, separated by commas.
	files string
}

// logger returns the log. It also makes klog, which the Kubernetes libraries use, write to that log. The returned
// function sets the verbosity of both.
func (o logOptions) logger(out io.Writer) (*slog.Logger, func(int) error, error) {
	var level slog.LevelVar
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	setVerbosity := func(v int) error {
		if v < 0 {
			return errors.New("the verbosity must not be negative")
		}
		level.Set(slog.Level(-v))
		return flags.Set("v", strconv.Itoa(v))
	}
	if err := setVerbosity(o.verbosity); err != nil {
		return nil, nil, fmt.Errorf("--v: %w", err)
	}
	patterns, err := parseFileVerbosities(o.files)
	if err == nil {
		err = flags.Set("vmodule", o.files)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--vmodule: %w", err)
	}
	options := &slog.HandlerOptions{Level: &level}
	if len(patterns) > 0 {
		options.Level = lowest(&level, patterns)
	}
	var handler slog.Handler
	switch o.format {
	case "text":
		handler = slog.NewTextHandler(out, options)
		if len(patterns) > 0 {
			handler = &fileHandler{Handler: handler, standard: &level, patterns: patterns}
		}
	case "json":
		if len(patterns) > 0 {
			return nil, nil, errors.New("vmodule: Forbidden: Only supported for text log format")
		}
		handler = slog.NewJSONHandler(out, options)
	default:
		return nil, nil, fmt.Errorf("--log-format must be text or json, not %q", o.format)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log)
	slog.SetDefault(log)
	return log, setVerbosity, nil
}

// fileVerbosity is the verbosity of the source files that match a pattern.
type fileVerbosity struct {
	pattern string
	level   slog.Level
}

// parseFileVerbosities reads the value of --vmodule.
func parseFileVerbosities(s string) ([]fileVerbosity, error) {
	var out []fileVerbosity
	for entry := range strings.SplitSeq(s, ",") {
		if entry == "" {
			continue
		}
		pattern, number, found := strings.Cut(entry, "=")
		v, err := strconv.Atoi(number)
		if _, bad := path.Match(pattern, ""); !found || pattern == "" || err != nil || v < 0 || bad != nil {
			return nil, fmt.Errorf("%q is not of the form pattern=N", entry)
		}
		out = append(out, fileVerbosity{pattern, slog.Level(-v)})
	}
	return out, nil
}

// lowest returns the lowest level at which any file logs. It changes when standard changes.
func lowest(standard slog.Leveler, patterns []fileVerbosity) slog.Leveler {
	return levelFunc(func() slog.Level {
		level := standard.Level()
		for _, p := range patterns {
			level = min(level, p.level)
		}
		return level
	})
}

type levelFunc func() slog.Level

// Level implements slog.Leveler.
func (f levelFunc) Level() slog.Level { return f() }

// fileHandler drops records that are too detailed for the source file that they come from. The first pattern that
// matches is used. As in klog, a pattern with a slash is compared with the path of the file, and any other pattern
// with its name, both without ".go".
type fileHandler struct {
	slog.Handler
	standard slog.Leveler
	patterns []fileVerbosity
}

// Handle implements slog.Handler.
func (h *fileHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < h.levelOf(r.PC) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *fileHandler) levelOf(pc uintptr) slog.Level {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	file := strings.TrimSuffix(frame.File, ".go")
	for _, p := range h.patterns {
		name := file
		if !strings.Contains(p.pattern, "/") {
			name = path.Base(file)
		}
		if ok, _ := path.Match(p.pattern, name); ok { // the pattern was checked
			return p.level
		}
	}
	return h.standard.Level()
}

// WithAttrs implements slog.Handler.
func (h *fileHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &fileHandler{h.Handler.WithAttrs(attrs), h.standard, h.patterns}
}

// WithGroup implements slog.Handler.
func (h *fileHandler) WithGroup(name string) slog.Handler {
	return &fileHandler{h.Handler.WithGroup(name), h.standard, h.patterns}
}

// lineLogger logs each line that is written to it, so that all output has the format of the log. The text of each
// call of Write must end with a line break.
type lineLogger struct{ log *slog.Logger }

// Write implements io.Writer.
func (l lineLogger) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		l.log.Info(strings.TrimSuffix(line, "\n"))
	}
	return len(text), nil
}
