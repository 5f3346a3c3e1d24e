package apiextensions

import (
	"fmt"
	"slices"
	"strings"
)

// stringFormats are the formats of strings that are validated, without hyphens: a name with
// hyphens means the same format.
var stringFormats = []string{
	"bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname",
	"ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8slongname", "k8sshortname", "mac", "password", "rgbcolor",
	"ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5",
}

// newWarnings returns the warnings about d that are not also warnings about old. old is nil on create.
// A controller that updates a definition again and again gets each warning once and not with every update.
func newWarnings(about func(*definitionSpec) []string, d, old *definition) []string {
	warnings := about(&d.Spec)
	if old == nil {
		return warnings
	}
	known := about(&old.Spec)
	return slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(known, w) })
}

// warnings returns the texts that a function returns of the schemas of a definition, except "", sorted and without
// duplicates.
func warnings(spec *definitionSpec, of func(*props) string) []string {
	var out []string
	anySchemaMatches(spec, func(s *props) bool {
		if text := of(s); text != "" {
			out = append(out, text)
		}
		return false
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// unrecognizedFormats warns of the formats that are not known for the type beside them.
func unrecognizedFormats(spec *definitionSpec) []string {
	return warnings(spec, func(s *props) string {
		if s.Format == "" || recognized(s.Type, s.Format) {
			return ""
		}
		return fmt.Sprintf("unrecognized format %q", s.Format)
	})
}

// unsupportedSets warns of sets of objects or lists.
func unsupportedSets(spec *definitionSpec) []string {
	return warnings(spec, func(s *props) string {
		if s.XListType == nil || *s.XListType != "set" || s.Items == nil || s.Items.Schema == nil {
			return ""
		}
		if t := s.Items.Schema.Type; t == "object" || t == "array" {
			return fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL "+
				"validation rules", t)
		}
		return ""
	})
}

// recognized reports whether a format is validated for values of a type. An unknown format is only a reason for a
// warning, because OpenAPI allows any text there. A schema without a type is treated as that of a string.
func recognized(kind, format string) bool {
	switch kind {
	case "", "string":
		return slices.Contains(stringFormats, strings.ReplaceAll(format, "-", ""))
	case "integer":
		return format == "int32" || format == "int64"
	case "number":
		return format == "float" || format == "double"
	}
	return false
}
