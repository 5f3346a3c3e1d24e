package server

import (
	"context"

	"github.com/keelson-dev/keelson/auth/filewatch"
	"github.com/keelson-dev/keelson/server/background"
)

// followedFile is a file whose content is applied again when it changes.
type followedFile struct {
	flag, path string // flag is "" for a file that is not configured
	content    []byte // that is in effect
	// apply puts other content into effect. After an error the content before stays in effect.
	apply func(content []byte) error
}

// follow applies changes of a file until the server stops.
func (s *starting) follow(f followedFile) {
	if f.flag == "" {
		return
	}
	watch := filewatch.File{
		Path: f.path, Interval: s.config.reloadEvery(), Wake: s.config.wake,
		Apply: func(content []byte) error {
			if err := f.apply(content); err != nil {
				return err
			}
			s.log.Info("a changed file is in effect", "flag", f.flag, "file", f.path)
			return nil
		},
		OnError: func(err error) {
			s.log.Error("a changed file cannot be used; its content before stays in effect",
				"flag", f.flag, "file", f.path, "error", err)
		},
	}
	s.work.Go("changes of "+f.flag, background.Forever(func(ctx context.Context) { watch.Run(ctx, f.content) }))
}

// Alive returns an error if the server cannot go on as it is and has to be started again. An etcd cluster that does not answer is
// no such error.
func (s *Server) Alive(ctx context.Context) error { return s.http.routes.health.Alive(ctx, "etcd") }

// Reload has the server look at once whether configured files have changed, which it otherwise does every few seconds.
func (s *Server) Reload() { s.http.config.wake.Fire() }
