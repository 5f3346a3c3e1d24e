package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Logger passes the log of etcd's code to slog. Its warnings become debug messages, because they are about single attempts, which
// that code repeats. Failures of a client that matter are returned as errors. Only what ends the process is an error in the log.
func Logger(log *slog.Logger) *zap.Logger { return zap.New(&slogCore{log}) }

// slogCore implements zapcore.Core.
type slogCore struct{ log *slog.Logger }

func (c *slogCore) level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.DPanicLevel:
		return slog.LevelError
	case l >= zapcore.ErrorLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (c *slogCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), c.level(l))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{c.log.With(attributes(fields)...)}
}

func (c *slogCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.Log(context.Background(), c.level(e.Level), "etcd: "+e.Message, attributes(fields)...)
	return nil
}

func (c *slogCore) Sync() error { return nil }

// attributes converts fields of zap to attributes of slog.
func attributes(fields []zapcore.Field) []any {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	var out []any
	for name, value := range values.Fields {
		out = append(out, name, value)
	}
	return out
}
