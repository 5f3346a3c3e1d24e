package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// repairedCopy makes a copy of the store in a locked data directory and repairs that. It removes the copy after
// use returns. The store is not changed.
func repairedCopy(
	ctx context.Context, dataDir string, ro embedded.RepairOptions, use func(*embedded.Reader, *embedded.Repaired) error,
) (err error) {
	o := embedded.Options{Dir: datadir.RepairedCopy(dataDir)}
	if err := os.RemoveAll(o.Dir); err != nil { // left by an interrupted attempt
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	if err := embedded.LinkTo(datadir.StoreDir(dataDir), o.Dir); err != nil {
		return oneLine(err)
	}
	done, err := embedded.Repair(ctx, o, ro)
	if err != nil {
		return oneLine(err)
	}
	r, err := embedded.OpenReader(o)
	if err != nil {
		return oneLine(err)
	}
	return errors.Join(use(r, &done), r.Close())
}

func newRepair(out io.Writer) *cobra.Command {
	dataDir := config.Default().Storage.DataDir
	c := &cobra.Command{
		Use: "repair", Short: "Make a damaged data directory usable again",
		Long: "Repair replaces each damaged table of a stopped server by one with all that can\n" +
			"be read of it, and prints what is lost. The damaged files are kept. What is\n" +
			"lost cannot be read and makes lists of its resource fail, so that nobody takes\n" +
			"it for deleted, until it is deleted with the option\n" +
			"ignoreStoreReadErrorWithClusterBreakingPotential. `keelson check` says before\n" +
			"what is damaged.",
		Example:      "  keelson repair --data-dir /var/lib/keelson",
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			lock, err := lockStore(dataDir)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, lock.Close()) }()
			store := datadir.StoreDir(dataDir)
			done, err := embedded.Repair(c.Context(), embedded.Options{Dir: store}, embedded.RepairOptions{})
			if err != nil {
				return oneLine(err)
			}
			printRepaired(out, &done, filepath.Join(store, embedded.DamagedName))
			return nil
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", dataDir, dataDirUsage)
	return c
}

// printRepaired prints the results of a repair. aside is the directory to which damaged files were moved.
func printRepaired(out io.Writer, done *embedded.Repaired, aside string) {
	for _, l := range done.Lost {
		fmt.Fprintln(out, l)
	}
	if done.LogLost > 0 {
		fmt.Fprintf(out, "The log of changes up to revision %d has gaps: watches and reads of the past begin after it\n", done.LogLost)
	}
	if len(done.Tables) == 0 && len(done.Lost) == 0 {
		fmt.Fprintln(out, "Nothing is damaged")
		return
	}
	if len(done.Tables) == 0 { // a repair before was interrupted after it had replaced them
		fmt.Fprintf(out, "The repair is complete; %d entries and %d older versions are lost. The damaged files are in %s\n",
			len(done.Lost), done.Past, aside)
		return
	}
	fmt.Fprintf(out, "Repaired %s; %d entries and %d older versions are lost. The damaged files are in %s\n",
		strings.Join(done.Tables, ", "), len(done.Lost), done.Past, aside)
}
