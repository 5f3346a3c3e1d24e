package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// keelsonGroup has the flags that kube-apiserver does not have.
const keelsonGroup = "Keelson"

// flagGroup is a group of flags in the help.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// groupFlags returns the flags by group, in the order of the help.
func groupFlags(f *pflag.FlagSet) []flagGroup {
	titles, texts := parseFlagTexts()
	of, groups := map[string]int{}, make([]flagGroup, len(titles))
	for i, title := range titles {
		groups[i] = flagGroup{title, pflag.NewFlagSet(title, pflag.ContinueOnError)}
	}
	for _, text := range texts {
		of[text.name] = slices.Index(titles, text.group)
	}
	f.VisitAll(func(flag *pflag.Flag) {
		i, found := of[flag.Name]
		if !found {
			i = slices.Index(titles, keelsonGroup)
		}
		groups[i].flags.AddFlag(flag)
	})
	return groups
}

// groupHelp makes the help of a command show its flags by group, and its error of an unknown flag name the nearest one.
func groupHelp(c *cobra.Command) {
	usage := func(c *cobra.Command, out io.Writer) {
		fmt.Fprintf(out, "Usage:\n  %s\n", c.UseLine())
		if c.HasAvailableSubCommands() {
			fmt.Fprint(out, "\nCommands:\n")
			for _, sub := range c.Commands() {
				fmt.Fprintf(out, "  %-16s %s\n", sub.Name(), sub.Short)
			}
		}
		if c.Flags().Lookup("secure-port") == nil { // it does not serve
			fmt.Fprintf(out, "\nFlags:\n%s", c.Flags().FlagUsages())
			return
		}
		for _, g := range groupFlags(c.Flags()) {
			if g.flags.HasAvailableFlags() {
				fmt.Fprintf(out, "\n%s flags:\n\n%s", g.title, g.flags.FlagUsages())
			}
		}
	}
	c.SetUsageFunc(func(c *cobra.Command) error { usage(c, c.OutOrStderr()); return nil })
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n", cmp.Or(c.Long, c.Short))
		usage(c, c.OutOrStdout())
	})
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		name, found := strings.CutPrefix(err.Error(), "unknown flag: --")
		if near := nearestFlag(c.Flags(), name); found && near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
		return err
	})
}

// nearestFlag returns the flag whose name is most like another one, "" if none is.
func nearestFlag(f *pflag.FlagSet, name string) string {
	best, least := "", len(name)/3+1
	f.VisitAll(func(flag *pflag.Flag) {
		d := distance(name, flag.Name)
		if len(name) > 3 && strings.HasPrefix(flag.Name, name) {
			d = min(d, 1)
		}
		if !flag.Hidden && d < least {
			best, least = flag.Name, d
		}
	})
	return best
}

// distance returns how many characters have to be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance between a[:i] and b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{replaced, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
