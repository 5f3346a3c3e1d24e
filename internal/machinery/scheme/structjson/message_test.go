package structjson_test

import (
	"bytes"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/structjson"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// decodedJSON returns the JSON of a message by decoding it, nil if it cannot be decoded or encoded.
func decodedJSON(v *registry.Version, message []byte) []byte {
	obj := v.New()
	if err := scheme.DecodeProto(message, obj); err != nil {
		return nil
	}
	text, err := structjson.Append(nil, obj)
	if err != nil {
		return nil
	}
	return text
}

// TestMessages makes JSON from messages of random objects of every kind, and from the same messages with random
// damage. If AppendMessage succeeds, its result must be the same as that of decoding and encoding the message.
func TestMessages(t *testing.T) {
	direct, all := 0, 0
	each(t, func(t *testing.T, v *registry.Version, stored bool) {
		if !stored {
			return
		}
		all++
		f := newFiller(11)
		made := 0
		for range 60 {
			obj := v.New()
			f.fill(reflect.ValueOf(obj).Elem(), 0)
			message, err := scheme.EncodeProto(obj)
			if err != nil {
				continue
			}
			check := func(message []byte, damaged bool) {
				got, ok := structjson.AppendMessage([]byte("before"), message, reflect.TypeOf(obj).Elem())
				if !ok {
					if string(got) != "before" {
						t.Fatalf("%q was appended of a message that it refuses", got)
					}
					return
				}
				if !damaged {
					made++
				}
				if want := decodedJSON(v, message); !bytes.Equal(got[len("before"):], want) {
					t.Fatalf("of the message %x (damaged: %v)\n got %s\nwant %s", message, damaged, got[len("before"):], want)
				}
			}
			check(message, false)
			for range 20 {
				if len(message) == 0 {
					break
				}
				other := bytes.Clone(message)
				switch f.IntN(3) {
				case 0:
					other[f.IntN(len(other))] ^= 1 << f.IntN(8)
				case 1:
					other = other[:f.IntN(len(other))]
				default: // fields that are there twice
					other = append(other, message...)
				}
				check(other, true)
			}
		}
		if made > 0 {
			direct++
		}
	})
	if all == 0 || direct < all*9/10 {
		t.Errorf("only %d of %d kinds are made without decoding", direct, all)
	}
	t.Logf("%d of %d kinds are made without decoding", direct, all)
}

// TestMessageOfPod checks that a Pod with all its parts needs no decoding as a whole.
func TestMessageOfPod(t *testing.T) {
	f := newFiller(5)
	for range 200 {
		pod := &corev1.Pod{}
		f.fill(reflect.ValueOf(pod).Elem(), 0)
		message, err := pod.Marshal()
		if err != nil {
			continue
		}
		if _, ok := structjson.AppendMessage(nil, message, reflect.TypeFor[corev1.Pod]()); !ok {
			t.Fatalf("the message %x", message)
		}
	}
}

func BenchmarkMessageOfPod(b *testing.B) {
	message, err := podOf(b).(*corev1.Pod).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.Run("direct", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out, _ = structjson.AppendMessage(out[:0], message, reflect.TypeFor[corev1.Pod]())
		}
	})
	b.Run("decoded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var pod corev1.Pod
			if err := pod.Unmarshal(message); err != nil {
				b.Fatal(err)
			}
			out, _ = structjson.Append(out[:0], &pod)
		}
	})
}
