package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

func newPurge(out io.Writer) *cobra.Command {
	dataDir := config.Default().Storage.DataDir
	c := &cobra.Command{
		Use: "purge", Short: "Remove what was overwritten or deleted from the disk",
		Long: "Purge removes the history from the data directory of a stopped server: the past\n" +
			"of all objects, such as Secrets from before encryption, and who changed what.\n" +
			"All files are written again without it, which needs as much free space as the\n" +
			"store has. Objects stay as they are stored: write those that are not encrypted\n" +
			"yet before. Backups and scheduled snapshots are not changed.",
		Example:      "  keelson purge --data-dir /var/lib/keelson",
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			lock, err := lockStore(dataDir)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, lock.Close()) }()
			store := datadir.StoreDir(dataDir)
			revision, err := embedded.Purge(c.Context(), embedded.Options{Dir: store})
			if err != nil {
				return oneLine(err)
			}
			_, err = fmt.Fprintf(out, "Removed what was before revision %d from %s\n", revision, store)
			return err
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", dataDir, dataDirUsage)
	return c
}
