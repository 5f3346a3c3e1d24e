// Package protostruct encodes Go structs as protobuf messages by the numbers in their field tags, as the generated code
// of Kubernetes' API types does. It is for API types that this repository declares itself, because a release of
// k8s.io/api that the module has to compile with does not have them.
//
// A field has a tag such as `protobuf:"bytes,2,opt,name=spec"`; fields without a tag are left out. The type of a
// field is a string, an int32, a struct, a pointer to one of these, or a slice of structs. A struct that has its
// own methods for protobuf (metadata, conditions) is encoded by these methods. As in the generated code, a string,
// number or struct is always written, and a pointer unless it is nil. Decoding skips unknown fields.
package protostruct

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is a struct with generated methods.
type Message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// Append appends the message of the struct that v points to.
func Append(b []byte, v any) ([]byte, error) {
	return appendStruct(b, reflect.ValueOf(v).Elem())
}

func appendStruct(b []byte, v reflect.Value) (_ []byte, err error) {
	for i := range v.NumField() {
		number := fieldNumber(v.Type().Field(i))
		if number == 0 {
			continue
		}
		f := v.Field(i)
		switch {
		case f.Kind() == reflect.Slice:
			for j := range f.Len() {
				if b, err = appendValue(b, number, f.Index(j)); err != nil {
					return nil, err
				}
			}
		case f.Kind() != reflect.Pointer:
			b, err = appendValue(b, number, f)
		case !f.IsNil():
			b, err = appendValue(b, number, f.Elem())
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

func appendValue(b []byte, number protowire.Number, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.String:
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v.String()), nil
	case reflect.Int32:
		return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(v.Int())), nil
	case reflect.Struct:
		var inner []byte
		var err error
		if m, ok := v.Addr().Interface().(Message); ok {
			inner, err = m.Marshal()
		} else {
			inner, err = appendStruct(nil, v)
		}
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), inner), err
	}
	return nil, fmt.Errorf("%s has no encoding in this package", v.Type())
}

func fieldNumber(f reflect.StructField) protowire.Number {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return protowire.Number(n)
}

// errType is the error of a field with another wire type than its Go type has.
var errType = errors.New("proto: wrong wireType")

// Unmarshal decodes a message into the struct that v points to. Fields that the message does not have are not changed.
func Unmarshal(data []byte, v any) error {
	return unmarshalStruct(data, reflect.ValueOf(v).Elem())
}

func unmarshalStruct(data []byte, v reflect.Value) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return protowire.ParseError(size)
		}
		for i := range v.NumField() {
			if fieldNumber(v.Type().Field(i)) == number {
				if err := unmarshalField(data[:size], kind, v.Field(i)); err != nil {
					return fmt.Errorf("%s: %w", v.Type().Field(i).Name, err)
				}
			}
		}
		data = data[size:]
	}
	return nil
}

func unmarshalField(data []byte, kind protowire.Type, f reflect.Value) error {
	switch f.Kind() {
	case reflect.Slice:
		f.Set(reflect.Append(f, reflect.Zero(f.Type().Elem())))
		f = f.Index(f.Len() - 1)
	case reflect.Pointer:
		if f.IsNil() || f.Elem().Kind() != reflect.Struct {
			f.Set(reflect.New(f.Type().Elem()))
		}
		f = f.Elem()
	}
	if f.Kind() == reflect.Int32 {
		if kind != protowire.VarintType {
			return errType
		}
		value, _ := protowire.ConsumeVarint(data) // the caller has checked that it is complete
		f.SetInt(int64(int32(value)))             // as many bits as the field has
		return nil
	}
	if kind != protowire.BytesType {
		return errType
	}
	value, _ := protowire.ConsumeBytes(data)
	switch f.Kind() {
	case reflect.String:
		f.SetString(string(value))
		return nil
	case reflect.Struct:
		if m, ok := f.Addr().Interface().(Message); ok {
			return m.Unmarshal(value)
		}
		return unmarshalStruct(value, f)
	}
	return fmt.Errorf("%s has no encoding in this package", f.Type())
}
