package server

import (
	"context"
	"os"

	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/machinery/tracing/otlp"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

// openTracing makes the Tracer if tracing is configured. The collector may be down at that time.
func (s *starting) openTracing(ctx context.Context) error {
	file := s.config.Diagnostics.TracingConfigFile
	if file == "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	_, err = s.config.files.Load(reload.Part{Flag: "--tracing-config-file", Path: file, Apply: func(read filewatch.Read) error {
		c, err := otlp.ReadConfig(file, read)
		if err != nil {
			return err
		}
		c.Instance = bootstrap.ServerName(host)
		// The exporter connects later, when there are spans, so the end of ctx must not affect it.
		made, err := otlp.New(context.WithoutCancel(ctx), c, s.log)
		switch {
		case err != nil:
			return err
		case s.records.tracer == nil:
			s.records.tracer = made
		default:
			s.records.tracer.Use(made)
		}
		return nil
	}})
	return err
}

// stopTracing sends the remaining spans. This takes at most workTime.
func (s *Server) stopTracing() error {
	ctx, cancel := context.WithTimeout(context.Background(), workTime)
	defer cancel()
	return s.records.tracer.Stop(ctx)
}
