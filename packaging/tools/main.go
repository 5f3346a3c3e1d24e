// Command tools makes the files of a release; packaging/release.sh calls it. It is a module of its own, so that its
// libraries are not in the go.mod of the server.
//
//	go -C packaging/tools run . COMMAND ...
//
// Everything that it writes has the time of the environment variable SOURCE_DATE_EPOCH (seconds since 1970), so that two
// runs with the same input write the same bytes.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// command is one task of a release.
type command struct {
	name      string
	arguments string // for the usage
	// count is how many arguments there are at least; more are only for commands whose arguments end with "...".
	count int
	run   func(out io.Writer, args []string) error
}

// commands are all commands, in the order in which a release uses them.
func commands() []command {
	return []command{
		{"archive", "DIR FILE.tar.gz|FILE.zip|FILE.tar", 2, runArchive},
		{"sbom", "PROGRAM", 1, runSBOM},
		{"deb", "DIR VERSION ARCH FILE.deb", 4, runDeb},
		{"image", "VERSION REVISION FILE.tar ARCH=PROGRAM...", 4, runImage},
		{"formula", "VERSION DIR", 2, runFormula},
		{"keygen", "SECRET-KEY-FILE PUBLIC-KEY-FILE", 2, runKeygen},
		{"sign", "FILE", 1, runSign},
		{"verify", "FILE PUBLIC-KEY", 2, runVerify},
		{"push", "FILE.tar REPOSITORY TAG...", 3, runPush},
		{"moduleproxy", "REPOSITORY VERSION DIR", 3, runModuleProxy},
	}
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

// run runs the command that the arguments name.
func run(out io.Writer, args []string) error {
	usage := "the commands are:"
	for _, c := range commands() {
		line := c.name + " " + c.arguments
		usage += "\n  " + line
		if len(args) == 0 || args[0] != c.name {
			continue
		}
		more := len(c.arguments) > 3 && c.arguments[len(c.arguments)-3:] == "..."
		if n := len(args) - 1; n < c.count || n > c.count && !more {
			return fmt.Errorf("usage: %s", line)
		}
		return c.run(out, args[1:])
	}
	return fmt.Errorf("no such command; %s", usage)
}

// releaseTime returns the time of SOURCE_DATE_EPOCH.
func releaseTime() (time.Time, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be seconds since 1970: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
