package main

import (
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// otherFlags are the flags of no configuration field: those for the command itself, and those for its log.
const otherFlags = "version help help-all write-kubeconfig v vmodule log-format logging-format"

// TestFlagsAreFields checks that each flag in the tag of a field is a flag of the command, and that one field
// names each flag of the command that configures the server. The flags of compatibilityFlags have no fields.
func TestFlagsAreFields(t *testing.T) {
	flags := newServe(io.Discard, io.Discard, serveDefaults()).Flags()
	fieldOf := map[string]string{}
	for _, f := range config.Fields() {
		for _, name := range f.Flags {
			if flag := flags.Lookup(name); flag == nil || flag.Usage == "" {
				t.Errorf("%s: there is no flag --%s in flags.txt", f.Path, name)
			}
			if other := fieldOf[name]; other != "" {
				t.Errorf("--%s is a flag of %s and %s", name, other, f.Path)
			}
			fieldOf[name] = f.Path
		}
	}
	none := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(compatibilityFlags).add(none)
	for name := range strings.FieldsSeq(otherFlags) {
		none.Bool(name, false, "")
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if (fieldOf[f.Name] == "") == (none.Lookup(f.Name) == nil) {
			t.Errorf("--%s: the field %q has it, and no field should: %t", f.Name, fieldOf[f.Name], none.Lookup(f.Name) != nil)
		}
	})
}

// TestFlagsSetTheirFields sets each flag in turn, and checks that its field changes and no other field does.
func TestFlagsSetTheirFields(t *testing.T) {
	values := func(c config.Config) map[string]any {
		out := map[string]any{}
		for _, f := range config.Fields() {
			v := reflect.ValueOf(c)
			for name := range strings.SplitSeq(f.Path, ".") {
				v = v.FieldByName(name)
			}
			if v.Kind() != reflect.Func {
				out[f.Path] = v.Interface()
			}
		}
		return out
	}
	before := values(config.Default())
	for _, f := range config.Fields() {
		for _, name := range f.Flags {
			c := config.Default()
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			configFlags(flags, &c)
			flag := flags.Lookup(name)
			value := "7"
			switch flag.Value.Type() {
			case "bool":
				value = "true"
				if flag.DefValue == "true" {
					value = "false"
				}
			case "duration":
				value = "7s"
			case "stringToString", "claim=value":
				value = "a=b"
			}
			if err := flags.Set(name, value); err != nil {
				t.Errorf("--%s: %v", name, err)
				continue
			}
			for path, after := range values(c) {
				if changed := !reflect.DeepEqual(before[path], after); changed != (path == f.Path) {
					t.Errorf("--%s=%s changes %s: %t", name, value, path, changed)
				}
			}
		}
	}
}
