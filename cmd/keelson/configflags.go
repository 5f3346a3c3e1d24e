package main

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/server"
)

// flagTexts lists the flags of `keelson serve`: below "# title" those of a group of the help, in the groups and the order
// of kube-apiserver's help, a line each. "name: usage" is the flag of a field of the configuration whose tag has the name;
// a line that begins with a tab says that it is deprecated, and why. A name alone is a flag that is added elsewhere.
//
//go:embed flags.txt
var flagTexts string

// flagText is what flagTexts says of one flag.
type flagText struct{ group, name, usage, deprecated string }

// parseFlagTexts returns the titles of the groups, and the flags, both in the order of flagTexts.
func parseFlagTexts() (groups []string, flags []flagText) {
	for line := range strings.Lines(flagTexts) {
		line = strings.TrimSuffix(line, "\n")
		if title, found := strings.CutPrefix(line, "# "); found {
			groups = append(groups, title)
			continue
		}
		if deprecated, found := strings.CutPrefix(line, "\tdeprecated: "); found {
			flags[len(flags)-1].deprecated = deprecated
			continue
		}
		name, usage, _ := strings.Cut(line, ": ")
		usage = strings.ReplaceAll(usage, "{controllers}", strings.Join(server.Controllers(), ", "))
		usage = strings.NewReplacer("{minors}", fmt.Sprintf("1.%d to 1.%d", release.Oldest, release.Newest),
			"{newest}", release.Release{}.String()).Replace(usage)
		flags = append(flags, flagText{group: groups[len(groups)-1], name: name, usage: usage})
	}
	return groups, flags
}

// configFlags adds the flags of the fields of the configuration. Their defaults are the values in c.
func configFlags(f *pflag.FlagSet, c *config.Config) {
	texts := map[string]flagText{}
	_, flags := parseFlagTexts()
	for _, flag := range flags {
		texts[flag.name] = flag
	}
	for _, field := range config.Fields() {
		value := reflect.ValueOf(c).Elem()
		for name := range strings.SplitSeq(field.Path, ".") {
			value = value.FieldByName(name)
		}
		for _, name := range field.Flags {
			addFlag(f, value.Addr().Interface(), name, texts[name].usage, field.Inverted)
			if why := texts[name].deprecated; why != "" {
				markDeprecated(f, name, why)
			}
		}
	}
}

// deprecation is the annotation of a deprecated flag that says why.
const deprecation = "keelson_deprecated"

// markDeprecated hides a flag in the help, and has its use logged. pflag would print the use, in no format.
func markDeprecated(f *pflag.FlagSet, name, why string) {
	flag := f.Lookup(name)
	flag.Hidden, flag.Annotations = true, map[string][]string{deprecation: {why}}
}

// deprecated returns a line for each deprecated flag that was given, in the words of kube-apiserver.
func deprecated(f *pflag.FlagSet) (lines []string) {
	f.Visit(func(flag *pflag.Flag) {
		for _, why := range flag.Annotations[deprecation] {
			lines = append(lines, "Flag --"+flag.Name+" has been deprecated, "+why)
		}
	})
	return lines
}

// wholeValues are the flags of lists each of whose values may contain commas: a flag with several values is repeated.
var wholeValues = []string{
	"feature-gates", "runtime-config", "service-account-issuer", "service-account-key-file", "tls-sni-cert-key",
}

// addFlag adds a flag that sets what field points to; an inverted one sets the opposite of a truth value. The default is
// what is there. It panics if there are no flags of that type.
func addFlag(f *pflag.FlagSet, field any, name, usage string, inverted bool) {
	switch p := field.(type) {
	case *bool:
		if inverted {
			f.VarPF(&invertedValue{p}, name, "", usage).NoOptDefVal = "true"
		} else {
			f.BoolVar(p, name, *p, usage)
		}
	case *time.Duration:
		if name == "min-request-timeout" || strings.HasSuffix(name, "-seconds") {
			f.Var(&secondsValue{p}, name, usage)
		} else {
			f.DurationVar(p, name, *p, usage)
		}
	case *[]string:
		if slices.Contains(wholeValues, name) {
			f.StringArrayVar(p, name, *p, usage)
		} else {
			f.StringSliceVar(p, name, *p, usage)
		}
	case *map[string]string:
		if name == "oidc-required-claim" {
			f.Var(&claimsValue{p}, name, usage)
		} else {
			f.StringToStringVar(p, name, *p, usage)
		}
	case *config.Bytes:
		f.Var(&bytesValue{p}, name, usage)
	case *string:
		f.StringVar(p, name, *p, usage)
	case *int:
		f.IntVar(p, name, *p, usage)
	case *int64:
		f.Int64Var(p, name, *p, usage)
	case *float32:
		f.Float32Var(p, name, *p, usage)
	case *float64:
		f.Float64Var(p, name, *p, usage)
	case *[]int32:
		f.Int32SliceVar(p, name, *p, usage)
	default:
		panic(fmt.Sprintf("--%s: no flags of type %T", name, field))
	}
}
