package core

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestFieldPaths reads every selectable field of a filled object twice: by its
// protobuf numbers, and by its JSON name with reflection.
func TestFieldPaths(t *testing.T) {
	for _, k := range Kinds(features.Gates{}) {
		for round := range 3 {
			obj := k.Version(k.Storage.Version).New()
			fill(reflect.ValueOf(obj).Elem(), round)
			data, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range k.Selection.Fields {
				if f.Get != nil {
					continue
				}
				got, want := byNumbers(f, data), byName(reflect.ValueOf(obj).Elem(), f.Name)
				if got != want {
					t.Errorf("%s %s: by numbers %q, by name %q", k.Name, f.Name, got, want)
				}
			}
		}
	}
}

// fill sets scalars to values that differ from field to field; in round 0
// everything stays empty, in round 2 booleans are set.
func fill(v reflect.Value, round int) {
	count := 0
	var walk func(v reflect.Value, depth int)
	walk = func(v reflect.Value, depth int) {
		if !v.CanSet() || depth > 4 {
			return
		}
		count++
		switch v.Kind() {
		case reflect.String:
			v.SetString(fmt.Sprint("v", count))
		case reflect.Bool:
			v.SetBool(round == 2)
		case reflect.Int32, reflect.Int64:
			v.SetInt(int64(count))
		case reflect.Struct:
			if strings.HasSuffix(v.Type().PkgPath(), "apis/meta/v1") && v.Type().Name() != "ObjectMeta" {
				return
			}
			for i := range v.NumField() {
				walk(v.Field(i), depth+1)
			}
		}
	}
	if round > 0 {
		walk(v, 0)
	}
}

func byNumbers(f registry.Field, data []byte) string {
	var number uint64
	for i, want := range f.Path {
		last := i == len(f.Path)-1
		found := false
		rest := data
		for len(rest) > 0 && !found {
			tag, n := binary.Uvarint(rest)
			rest = rest[n:]
			switch tag & 7 {
			case 0:
				value, n := binary.Uvarint(rest)
				rest = rest[n:]
				if int32(tag>>3) == want && last {
					number, found = value, true
				}
			case 2:
				size, n := binary.Uvarint(rest)
				body := rest[n : n+int(size)]
				rest = rest[n+int(size):]
				if int32(tag>>3) == want {
					data, found = body, true
				}
			default:
				panic("wire type")
			}
		}
		if !found && f.Type == registry.String {
			return f.Default
		}
	}
	switch f.Type {
	case registry.Bool:
		return fmt.Sprint(number != 0)
	case registry.Int:
		return fmt.Sprint(number)
	}
	return string(data)
}

func byName(v reflect.Value, name string) string {
	for part := range strings.SplitSeq(name, ".") {
		found := false
		for i := range v.NumField() {
			tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if tag == part {
				v, found = v.Field(i), true
				break
			}
		}
		if !found {
			return "no field " + name
		}
	}
	return fmt.Sprint(v.Interface())
}

// TestFieldAliases holds aliases to declared fields.
func TestFieldAliases(t *testing.T) {
	for _, k := range Kinds(features.Gates{}) {
		names := map[string]bool{}
		for _, f := range k.Selection.Fields {
			names[f.Name] = true
		}
		for _, v := range k.Versions {
			for label, name := range v.FieldAliases {
				if !names[name] {
					t.Errorf("%s: label %s stands for no field: %q", k.Name, label, name)
				}
			}
		}
	}
}
