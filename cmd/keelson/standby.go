package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/offsite"
	"github.com/keelson-dev/keelson/internal/storage/copies"
)

// standbyFlags are the flags of `keelson standby` that `keelson serve` does not have.
type standbyFlags struct {
	from, identity string
	takeOver       bool
	serveStale     bool
}

func newStandby(out, errOut io.Writer) *cobra.Command {
	p := serveDefaults()
	p.standby = &standbyFlags{}
	c := newServe(out, errOut, p)
	c.Use, c.Short = "standby", "Follow the copy of another server, and take over from it"
	c.Long = "Standby follows the copy of a server with --backup-exclusive, and becomes the\n" +
		"server when that one is gone: with --takeover, or after `keelson promote`."
	c.Example = "  keelson standby --from s3://my-bucket/keelson --data-dir standby --takeover"
	f := c.Flags()
	f.StringVar(&p.standby.from, "from", "", "where the copy is: a directory, or s3://BUCKET/PREFIX")
	f.StringVar(&p.standby.identity, "identity", "", "file with the private key of age that decrypts an encrypted copy")
	f.BoolVar(&p.standby.serveStale, "serve-stale", false,
		"answer reads and watches while following, marked as old; needs the directory pki of the other server")
	f.BoolVar(&p.standby.takeOver, "takeover", false, "take over as soon as no server holds the lock of the copy")
	c.SetOut(out)
	c.SetErr(errOut)
	return c
}

// follow follows the copy until this server may write. It also sets the fields of the configuration that a server needs which can be taken
// over from. The result is nil if ctx ended.
func (s *standbyFlags) follow(ctx context.Context, c *config.Config, o server.Options) (*copies.Handover, error) {
	switch {
	case s.from == "":
		return nil, errors.New("--from must name the copy that is followed")
	case c.Storage.Backup.To != "" && c.Storage.Backup.To != s.from:
		return nil, errors.New("--backup-to is --from of a standby; leave it out")
	}
	identities, err := readIdentities(s.identity)
	if err != nil {
		return nil, err
	}
	c.Storage.Backup.To, c.Storage.Backup.Exclusive = s.from, true
	if err := c.Validate(); err != nil {
		return nil, err
	}
	systemd, err := newNotifier(os.Getenv)
	if err != nil {
		return nil, err
	}
	defer systemd.close()
	systemd.send("READY=1")
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	standby := &offsite.Standby{
		Config: &c.Storage, Identities: identities, TakeOver: s.takeOver, Name: host, Log: c.Diagnostics.Log,
	}
	if s.serveStale {
		standby.Serve = server.ServeStale(*c, o)
	}
	h, err := standby.Run(ctx)
	if ctx.Err() != nil {
		return nil, nil
	}
	if err == nil {
		c.Diagnostics.Log.Info("this server takes over", "epoch", h.Lock.Epoch(), "copied", h.Revision)
	}
	return h, err
}

func newPromote(out io.Writer) *cobra.Command {
	dataDir := ""
	c := &cobra.Command{
		Use: "promote", Short: "Make a standby the server", Args: noArguments, SilenceUsage: true, SilenceErrors: true,
		Long: "Promote makes the standby that uses a data directory on this machine take over,\n" +
			"as soon as no other server holds the lock of the copy: at once if that server\n" +
			"was stopped, and within some seconds if it was killed.",
		Example: "  keelson promote --data-dir /var/lib/keelson",
		RunE: func(*cobra.Command, []string) error {
			if err := offsite.Promote(dataDir); err != nil {
				return err
			}
			_, err := fmt.Fprintln(out, "The standby takes over as soon as no other server holds the lock of the copy; its log says when it does")
			return err
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", config.Default().Storage.DataDir, "data directory of the standby")
	return c
}
