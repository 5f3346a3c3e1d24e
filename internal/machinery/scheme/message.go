package scheme

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// The generated protobuf decoders accept any bytes as a string and as raw JSON, and their recursion is
// not limited. So a message from a client is checked before it is decoded, by the fields of the
// object's Go type.

// A message describes the fields of a protobuf message that have to be checked. A nil *message
// has none.
type message struct {
	fields map[protowire.Number]wireField
}

// A wireField is a field of a message. At most one of its members is set.
type wireField struct {
	message *message
	check   func([]byte) error
}

var (
	errText    = errors.New("string field contains invalid UTF-8")
	errMessage = fmt.Errorf("proto: nested more than %d messages deep", MaxDepth)
)

func checkText(b []byte) error {
	if !utf8.Valid(b) {
		return errText
	}
	return nil
}

// checkRawJSON returns an error unless the bytes are a JSON document.
func checkRawJSON(b []byte) error {
	if err := checkDepth(b); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	var any json.RawMessage
	if err := json.Unmarshal(b, &any); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	return nil
}

// checkMessage checks a protobuf message that will be decoded into an object of the type of
// like. Messages that are malformed in other ways are left to the decoder.
func checkMessage(raw []byte, like runtime.Object) error {
	return messageOf(reflect.TypeOf(like)).checkAll(raw, 0)
}

func (m *message) checkAll(b []byte, depth int) error {
	if depth > MaxDepth {
		return errMessage
	}
	for len(b) > 0 {
		number, kind, value, size, err := wire.NextField(b)
		if err != nil {
			return nil
		}
		if kind == protowire.BytesType {
			f := m.fields[protowire.Number(number)]
			var err error
			switch {
			case f.check != nil:
				err = f.check(value)
			case f.message != nil:
				err = f.message.checkAll(value, depth+1)
			}
			if err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

// messages caches the results of messageOf: reflect.Type -> *message.
var messages sync.Map

// messageOf returns the description of a Go type's message.
func messageOf(t reflect.Type) *message {
	if known, ok := messages.Load(t); ok {
		return known.(*message)
	}
	found := describe(t, map[reflect.Type]*message{})
	messages.Store(t, found)
	return found
}

// rawJSON are the types whose only field, number 1, contains a JSON document.
var rawJSON = []reflect.Type{reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[apiextensionsv1.JSON](),
	reflect.TypeFor[metav1.FieldsV1]()}

func describe(t reflect.Type, known map[reflect.Type]*message) *message {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if m, ok := known[t]; ok {
		return m
	}
	m := &message{fields: map[protowire.Number]wireField{}}
	known[t] = m
	for _, raw := range rawJSON {
		if t == raw {
			m.fields[1] = wireField{check: checkRawJSON}
			return m
		}
	}
	switch {
	case t == quantityType:
		m.fields[1] = wireField{check: func(b []byte) error { return CheckQuantity(string(b)) }}
	case t.Kind() == reflect.Slice: // a named slice type, which is a message with one repeated field
		m.fields[1] = fieldOf(t.Elem(), known)
	case t.Kind() == reflect.Map:
		m.fields[1], m.fields[2] = fieldOf(t.Key(), known), fieldOf(t.Elem(), known)
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			encoding, rest, _ := strings.Cut(t.Field(i).Tag.Get("protobuf"), ",")
			digits, _, _ := strings.Cut(rest, ",")
			if number, err := strconv.Atoi(digits); err == nil && encoding == "bytes" {
				m.fields[protowire.Number(number)] = repeatedField(t.Field(i).Type, known)
			}
		}
	}
	return m
}

var messageType = reflect.TypeFor[ProtoMessage]()

// repeatedField returns the description of a field that may be a list.
func repeatedField(t reflect.Type, known map[reflect.Type]*message) wireField {
	isMessage := reflect.PointerTo(t).Implements(messageType)
	if t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !isMessage {
		return fieldOf(t.Elem(), known)
	}
	return fieldOf(t, known)
}

func fieldOf(t reflect.Type, known map[reflect.Type]*message) wireField {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return wireField{check: checkText}
	case reflect.Struct, reflect.Map:
		return wireField{message: describe(t, known)}
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return wireField{message: describe(t, known)}
		}
	}
	return wireField{}
}
