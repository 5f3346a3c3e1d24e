// Command compare starts a kube-apiserver of any version and Keelson with equal settings and prints what differs, a line for
// each difference:
//
//	go run ./test/compare --reference PATH_OF_KUBE_APISERVER --etcd PATH_OF_ETCD
//
// or compares two servers that run: --reference-url, --reference-token, --keelson-url and --keelson-token. They must be
// new, with equal settings. Differences that are intended are in known.txt, each with its reason; they are not printed, but an
// entry that does not occur any more is. Two sections are compared only if --only names them: admission sends some 5,700 writes and takes
// five minutes, lives runs 48 lives of definitions under watches and takes three. With the kept answers of kube-apiserver
// (--answers FILE) each takes one. The exit status is 1 if something was printed, and 2 if the comparison failed.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/test/compare/servers"
)

//go:embed known.txt
var knownDifferences string

// A section compares one aspect of the servers.
type section struct {
	name string
	// collect returns what is compared of a server. It is called for kube-apiserver first.
	collect func(context.Context, *comparison, *server) (map[string]any, error)
	// summarize may replace differences that are there many times. It may be nil.
	summarize func([]difference) []difference
	large     bool // compared only if --only names it: it takes minutes
}

// sections returns all sections in their order. Those that write are the last.
func sections() []section {
	return []section{
		{name: "discovery", collect: collectDiscovery},
		{name: "openapi", collect: collectOpenAPI},
		{name: "gates", collect: collectGates},
		{name: "flags", collect: collectFlags},
		{name: "roles", collect: collectRoles},
		{name: "flowcontrol", collect: collectFlowControl},
		{name: "objects", collect: collectObjects},
		{name: "warnings", collect: collectWarnings},
		{name: "metrics", collect: collectMetrics},
		{name: "sample", collect: collectSample, summarize: summarizeSample},
		{name: "stored", collect: collectStored},
		{name: "admission", collect: collectAdmission, large: true},
		{name: "lives", collect: collectLives, large: true},
	}
}

// smallSections returns the sections that are compared if none is named.
func smallSections() []section {
	return slices.DeleteFunc(sections(), func(s section) bool { return s.large })
}

// A comparison has the two servers and what sections share.
type comparison struct {
	reference, keelson *server
	emulated           string        // the minor that both emulate; empty for the newest
	fields             int           // the limit of --fields
	pause              time.Duration // how long to wait for controllers and metrics of a server
	kinds              []kind
	bodies             *bodies
	notes              []string // what was not compared; printed with --all

	// For the sections admission and lives: the file of --answers (admission only), the pattern of --cases, the lines that
	// kube-apiserver answers differently itself, and how many cases and lines are compared.
	answers         string
	cases           *regexp.Regexp
	unstable        map[string]bool
	requests, lines int
}

func (c *comparison) servers() []*server { return []*server{c.reference, c.keelson} }

// errSkipped is the error of a section that cannot be compared with the servers that there are.
var errSkipped = errors.New("not compared")

// options are the flags.
type options struct {
	reference, etcd, keelson     string
	referenceURL, referenceToken string
	keelsonURL, keelsonToken     string
	emulated                     string
	allAlpha                     bool
	gates                        string
	only                         string
	fields                       int
	all                          bool
	openAPI                      string
	answers                      string
	cases                        string
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.StringVar(&o.reference, "reference", "", "program of kube-apiserver")
	f.StringVar(&o.etcd, "etcd", "", "program of etcd")
	f.StringVar(&o.keelson, "keelson", "", "program of Keelson; built from this repository by default")
	f.StringVar(&o.referenceURL, "reference-url", "", "URL of a running kube-apiserver, instead of --reference")
	f.StringVar(&o.referenceToken, "reference-token", servers.Token, "token of a member of system:masters for --reference-url")
	f.StringVar(&o.keelsonURL, "keelson-url", "", "URL of a running Keelson, instead of --keelson")
	f.StringVar(&o.keelsonToken, "keelson-token", servers.Token, "token of a member of system:masters for --keelson-url")
	f.StringVar(&o.emulated, "emulated-version", "", "minor that both behave as, as 1.36")
	f.BoolVar(&o.allAlpha, "all-alpha", false, "switch all alpha and beta gates and all versions of the API on")
	f.StringVar(&o.gates, "feature-gates", "", "feature gates for both, as A=true,B=false")
	f.StringVar(&o.only, "only", "", "sections to compare, with commas between them")
	f.IntVar(&o.fields, "fields", defaultFields, "how many fields of a kind the section sample tries; 0 is all")
	f.BoolVar(&o.all, "all", false, "print known differences, too")
	f.StringVar(&o.openAPI, "openapi", "", "folder to write the OpenAPI documents of kube-apiserver to, for OPENAPI_DOCUMENTS of "+
		"the generator; nothing is compared then, and no Keelson is needed")
	f.StringVar(&o.answers, "answers", "", "file with the answers of kube-apiserver in the section admission or lives; written if there is none")
	f.StringVar(&o.cases, "cases", "", "pattern of the cases of the sections admission and lives")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if _, err := regexp.Compile(o.cases); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case (o.reference == "") == (o.referenceURL == ""):
		return o, errors.New("either --reference or --reference-url is needed")
	case o.reference != "" && o.etcd == "":
		return o, errors.New("--reference needs --etcd")
	case o.keelson != "" && o.keelsonURL != "":
		return o, errors.New("--keelson and --keelson-url exclude each other")
	}
	for name := range strings.SplitSeq(o.only, ",") {
		if name != "" && !slices.ContainsFunc(sections(), func(s section) bool { return s.name == name }) {
			return o, fmt.Errorf("there is no section %q", name)
		}
	}
	return o, nil
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	found, err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "compare:", err)
		defer os.Exit(2)
	case found:
		defer os.Exit(1)
	}
}

// run reports whether something was printed that is not expected.
func run(ctx context.Context, args []string, out io.Writer) (found bool, err error) {
	o, err := parse(args)
	if err != nil {
		return false, err
	}
	known, err := readKnown(strings.NewReader(knownDifferences))
	if err != nil {
		return false, fmt.Errorf("known.txt: %w", err)
	}
	c, closeServers, err := start(ctx, o)
	defer func() { err = errors.Join(err, closeServers()) }()
	if err != nil {
		return false, err
	}
	if o.openAPI != "" {
		return false, c.reference.saveOpenAPI(ctx, o.openAPI)
	}
	chosen := smallSections()
	if o.only != "" {
		names := strings.Split(o.only, ",")
		chosen = slices.DeleteFunc(sections(), func(s section) bool { return !slices.Contains(names, s.name) })
	}
	// With other settings, or less of a section, a known difference may be absent.
	settled := o.emulated == "" && !o.allAlpha && o.gates == "" && o.referenceURL == "" && o.keelsonURL == "" && o.fields == defaultFields
	return report(ctx, c, chosen, known, o.all, settled, out)
}

// defaultFields is the default of --fields.
const defaultFields = 150

// start starts the servers that have no URL.
func start(ctx context.Context, o options) (*comparison, func() error, error) {
	g, err := servers.NewGroup(servers.Settings{Emulated: o.emulated, AllAlpha: o.allAlpha, Gates: o.gates})
	if err != nil {
		return nil, func() error { return nil }, err
	}
	c := &comparison{fields: o.fields, emulated: o.emulated, pause: time.Second, answers: o.answers}
	if o.cases != "" {
		c.cases = regexp.MustCompile(o.cases) // parse has tried it
	}
	_, err = os.Stat(o.answers)
	switch {
	case o.answers != "" && err == nil && (o.only == "admission" || o.only == "lives"):
		c.reference = newServer(reference, "", "") // it is not asked
	case o.referenceURL != "":
		c.reference = newServer(reference, o.referenceURL, o.referenceToken)
	default:
		s, err := g.KubeAPIServer(ctx, o.reference, o.etcd)
		if err != nil {
			return nil, g.Close, err
		}
		c.reference = newServer(reference, s.URL, servers.Token)
		c.reference.etcd, c.reference.program = s.Etcd, s.Program
	}
	switch {
	case o.openAPI != "":
	case o.keelsonURL != "":
		c.keelson = newServer(keelson, o.keelsonURL, o.keelsonToken)
	default:
		s, err := g.Keelson(ctx, o.keelson)
		if err != nil {
			return nil, g.Close, err
		}
		c.keelson = newServer(keelson, s.URL, servers.Token)
		c.keelson.program = s.Program
	}
	return c, g.Close, nil
}

// report compares sections and prints a line for each difference, and the count of each section at the end. With settled,
// known differences that do not occur are printed, too.
func report(
	ctx context.Context, c *comparison, chosen []section, known []*expectation, all, settled bool, out io.Writer,
) (found bool, err error) {
	var counts []string
	for _, s := range chosen {
		differences, err := c.compare(ctx, s)
		if errors.Is(err, errSkipped) {
			counts = append(counts, fmt.Sprintf("%s: %v", s.name, err))
			continue
		}
		if err != nil {
			return found, fmt.Errorf("%s: %w", s.name, err)
		}
		printed, hidden := 0, 0
		lines, knownLines := map[string]bool{}, map[string]bool{}
		for _, d := range differences {
			mark := ""
			if expected(known, s.name, d) {
				hidden++
				knownLines[lineOf(d)] = true
				if !all {
					continue
				}
				mark = " (known)"
			} else {
				printed++
				lines[lineOf(d)] = true
			}
			fmt.Fprintf(out, "%s %s%s\n", s.name, d, mark)
		}
		gone := 0
		for _, k := range known {
			if k.section == s.name && !k.found && !k.sometimes && settled {
				gone++
				fmt.Fprintf(out, "%s known.txt:%d: %s does not occur any more: take the line out\n", s.name, k.line, k.pattern)
			}
		}
		if all {
			for _, note := range c.notes {
				fmt.Fprintf(out, "%s note: %s\n", s.name, note)
			}
		}
		c.notes = nil
		found = found || printed+gone > 0
		counts = append(counts, summary(s.name, printed, hidden, gone))
		if c.requests > 0 {
			counts = append(counts, fmt.Sprintf("%s: %d cases, %d lines compared, %d differ, %d differ for a known reason, %d are not stable in kube-apiserver",
				s.name, c.requests, c.lines, len(lines), len(knownLines), len(c.unstable)))
			c.requests, c.unstable = 0, nil
		}
	}
	fmt.Fprintln(out, strings.Join(counts, "\n"))
	return found, nil
}

// summary is the line of a section at the end.
func summary(name string, printed, hidden, gone int) string {
	line := fmt.Sprintf("%s: no difference", name)
	if printed > 0 {
		line = fmt.Sprintf("%s: %d differences", name, printed)
	}
	if hidden > 0 {
		line += fmt.Sprintf(", %d known", hidden)
	}
	if gone > 0 {
		line += fmt.Sprintf(", %d lines of known.txt do not occur", gone)
	}
	return line
}

// compare returns the differences of a section, sorted.
func (c *comparison) compare(ctx context.Context, s section) ([]difference, error) {
	want, err := s.collect(ctx, c, c.reference)
	if err != nil {
		return nil, err
	}
	got, err := s.collect(ctx, c, c.keelson)
	if err != nil {
		return nil, err
	}
	if c.cases != nil {
		maps.DeleteFunc(want, func(name string, _ any) bool { return got[name] == nil })
	}
	out := c.withoutUnstable(compareTrees(want, got))
	if s.summarize != nil {
		out = s.summarize(out)
	}
	slices.SortFunc(out, func(a, b difference) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}
