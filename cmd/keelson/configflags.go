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

// flagTexts lists the flags of `keelson serve`, one on each line, in the groups and the order of kube-apiserver's
// help. The line "# title" begins a group. "name: usage" is the flag of the field of the configuration whose tag
// has that name. If the next line begins with a tab, the flag is deprecated, and the line has the reason. A name
// alone is a flag of other code.
//
//go:embed flags.txt
var flagTexts string

// flagText is the entry of one flag in flagTexts.
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

// deprecation is the annotation of a deprecated flag. Its value is the reason.
const deprecation = "keelson_deprecated"

// markDeprecated hides a flag in the help and makes its use be logged. pflag itself would print it, not in the
// log's format.
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

// wholeValues are list flags whose values may contain commas. A flag is repeated for each value.
var wholeValues = []string{
	"feature-gates", "runtime-config", "service-account-issuer", "service-account-key-file", "tls-sni-cert-key",
}

// addFlag adds a flag that sets the variable to which field points, or its opposite if inverted is true. The
// default is the present value of that variable. It panics if there are no flags of its type.
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
