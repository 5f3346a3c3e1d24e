package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/cmd/keelson/kubectlhistory"
	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/storage/copies"
)

// copyReader is the kubectlhistory.Copy of the copies that `keelson serve --backup-to` makes.
type copyReader struct {
	copyRestore
	encryption string
	flags      *pflag.FlagSet // those above
}

// AddFlags implements kubectlhistory.Copy.
func (r *copyReader) AddFlags(c *cobra.Command) {
	own := &cobra.Command{}
	r.place.addFlags(own)
	r.flags = own.Flags()
	r.flags.StringVar(&r.identity, "identity", "", copyIdentityUsage)
	r.flags.StringVar(&r.encryption, "encryption-provider-config", "",
		"the file of this flag of the server that made the copy, if its values are encrypted and the copy does not have the file")
	r.flags.Lookup("from").Usage = "bring back out of a copy: a directory, or s3://BUCKET/PREFIX (--backup-to of the server)"
	c.Flags().AddFlagSet(r.flags)
}

// Named implements kubectlhistory.Copy.
func (r *copyReader) Named() bool { return r.place.url != "" }

// Check implements kubectlhistory.Copy.
func (r *copyReader) Check() (err error) {
	r.flags.VisitAll(func(f *pflag.Flag) {
		if !r.Named() && f.Changed {
			err = errNoPlace
		}
	})
	return err
}

// Open implements kubectlhistory.Copy.
func (r *copyReader) Open(ctx context.Context, asOf string, elsewhere undelete.Elsewhere) (_ *kubectlhistory.OpenedCopy, err error) {
	target, err := parseMoment(asOf, time.Now())
	if err != nil {
		return nil, fmt.Errorf("--as-of: %w", err)
	}
	identities, err := readIdentities(r.identity)
	if err != nil {
		return nil, err
	}
	b, closeBucket, err := r.place.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeBucket()) }()
	dir, err := os.MkdirTemp("", "keelson-undelete-") // nobody else may read it
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	var done restoredCopy
	work := filepath.Join(dir, "copy")
	x, err := r.restoreState(ctx, b, target, identities, work, &done)
	if err != nil {
		return nil, r.place.explain(err)
	}
	s, err := r.serve(ctx, work, &done.state, elsewhere)
	if err != nil {
		return nil, fmt.Errorf("the copy as of %s cannot be served: %w", momentOf(&done.state), oneLine(err))
	}
	first, _ := x.First() // there is an image, because it was restored
	return &kubectlhistory.OpenedCopy{
		URL: s.URL(), HTTP: s.Client(), Token: s.AdminToken(), Revision: done.state.Revision,
		Moment: momentOf(&done.state).String(), First: first.String(), Close: func() error {
			const stopTime = 5 * time.Second
			ctx, cancel := context.WithTimeout(context.Background(), stopTime)
			defer cancel()
			return errors.Join(s.Stop(ctx), os.RemoveAll(dir))
		},
	}, nil
}

func momentOf(s *copies.Restored) copies.Moment {
	return copies.Moment{Revision: s.Revision, Time: s.Time}
}

// serve starts a server on the store that was restored to work.
func (r *copyReader) serve(
	ctx context.Context, work string, state *copies.Restored, elsewhere undelete.Elsewhere,
) (*server.Server, error) {
	c := server.Copied{Dir: filepath.Join(work, "store"), EncryptionConfigFile: r.encryption, Elsewhere: elsewhere}
	if content, found := state.Files[encryptionFile]; found && r.encryption == "" {
		c.EncryptionConfigFile = filepath.Join(work, encryptionFile)
		if err := os.WriteFile(c.EncryptionConfigFile, content, 0o600); err != nil {
			return nil, err
		}
	}
	return server.StartCopied(ctx, c)
}
