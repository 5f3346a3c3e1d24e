package server

import (
	"context"
	"os"

	"github.com/keelson-dev/keelson/controller/bootstrap"
	"github.com/keelson-dev/keelson/tracing"
)

// openTracing makes the Tracer if there is a configuration. The collector need not be there.
func (s *starting) openTracing(ctx context.Context) error {
	file := s.config.Filters.TracingConfigFile
	if file == "" {
		return nil
	}
	c, err := tracing.ReadConfig(file)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	c.Instance = bootstrap.ServerName(host)
	s.records.tracer, err = tracing.New(ctx, c, s.log)
	return err
}

// stopTracing sends the last spans, for at most workTime.
func (s *Server) stopTracing() error {
	ctx, cancel := context.WithTimeout(context.Background(), workTime)
	defer cancel()
	return s.records.tracer.Stop(ctx)
}
