package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Error is a mistake in a configuration.
type Error struct {
	err     error
	command string
}

// Errorf returns an error whose message names fields in braces: "{Storage.DataDir} must not be empty".
func Errorf(format string, args ...any) *Error { return &Error{err: fmt.Errorf(format, args...)} }

// OnCommandLine sets the message for CommandLine if kube-apiserver has a message of its own for this error. It
// returns e.
func (e *Error) OnCommandLine(format string, args ...any) *Error {
	e.command = fmt.Sprintf(format, args...)
	return e
}

// Error returns the message, which names fields by their paths, such as Storage.DataDir.
func (e *Error) Error() string {
	return expand(e.err.Error(), func(path string) string { return path })
}

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return errors.Unwrap(e.err) }

// CommandLine returns the message that the command prints: it names flags in place of fields. Fields without a flag keep
// their path.
func (e *Error) CommandLine() string {
	if e.command != "" {
		return e.command
	}
	return expand(e.err.Error(), func(path string) string {
		if flag := Flag(path); flag != "" {
			return "--" + flag
		}
		return path
	})
}

var placeholder = regexp.MustCompile(`\{[A-Z][A-Za-z0-9]*(\.[A-Z][A-Za-z0-9]*)+\}`)

func expand(message string, name func(path string) string) string {
	return placeholder.ReplaceAllStringFunc(message, func(s string) string { return name(s[1 : len(s)-1]) })
}

// CommandLine returns the message of an error of keelson.Start as the command prints it: with the names of flags in place of
// the fields of Config.
func CommandLine(err error) string {
	if e, ok := err.(*Error); ok { //nolint:errorlint // an Error has no other Error in it
		return e.CommandLine()
	}
	message := err.Error()
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			message = strings.Replace(message, inner.Error(), CommandLine(inner), 1)
		}
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			message = strings.Replace(message, inner.Error(), CommandLine(inner), 1)
		}
	}
	return message
}

// Field is a field of Config, or of one of its groups, that is not itself a group.
type Field struct {
	// Path is where the field is, such as Storage.Etcd.Servers.
	Path string
	// Flags are the flags of the command that set the field, without the dashes. The first one is preferred. It may be empty.
	Flags []string
	// Inverted means that a flag with the value true sets the field to false. The tag of such a field begins with
	// "!".
	Inverted bool
}

// Fields returns the fields of Config in the order of their declarations.
func Fields() []Field { return fieldsOf(reflect.TypeFor[Config](), "", "") }

// fieldsOf returns the fields of a group. prefix is the beginning of flags whose tags in the group begin with "-".
func fieldsOf(group reflect.Type, path, prefix string) []Field {
	var out []Field
	for i := range group.NumField() {
		f := group.Field(i)
		at, tag := strings.TrimPrefix(path+"."+f.Name, "."), f.Tag.Get("flag")
		isGroup := f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == group.PkgPath()
		switch {
		case f.Anonymous:
			out = append(out, fieldsOf(f.Type, path, prefix)...)
		case isGroup:
			out = append(out, fieldsOf(f.Type, at, tag)...)
		case tag == "":
			out = append(out, Field{Path: at})
		default:
			tag, inverted := strings.CutPrefix(tag, "!")
			flags := strings.Split(tag, ",")
			for i, flag := range flags {
				if strings.HasPrefix(flag, "-") {
					flags[i] = prefix + flag
				}
			}
			out = append(out, Field{Path: at, Flags: flags, Inverted: inverted})
		}
	}
	return out
}

// Flag returns the flag of the command that sets a field, without the dashes; "" if there is none. The field is named by its
// path, such as Storage.DataDir.
func Flag(path string) string {
	for _, f := range Fields() {
		if f.Path == path && len(f.Flags) > 0 {
			return f.Flags[0]
		}
	}
	return ""
}
