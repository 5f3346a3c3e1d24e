package protostruct

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type part struct {
	Name string `protobuf:"bytes,1,opt,name=name"`
	N    int32  `protobuf:"varint,3,opt,name=n"`
}

// whole has a field of each kind.
type whole struct {
	Meta    metav1.ObjectMeta `protobuf:"bytes,1,opt,name=metadata"`
	Text    string            `protobuf:"bytes,2,opt,name=text"`
	Number  int32             `protobuf:"varint,3,opt,name=number"`
	Part    part              `protobuf:"bytes,4,opt,name=part"`
	Pointer *part             `protobuf:"bytes,5,opt,name=pointer"`
	Maybe   *string           `protobuf:"bytes,6,opt,name=maybe"`
	Count   *int32            `protobuf:"varint,7,opt,name=count"`
	Parts   []part            `protobuf:"bytes,8,rep,name=parts"`
	Private int
}

func TestRoundTrip(t *testing.T) {
	text, number := "", int32(-7)
	for name, v := range map[string]whole{
		"empty": {},
		"full": {
			Meta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"k": "v"}}, Text: "t", Number: -1, Part: part{"p", 300},
			Pointer: &part{}, Maybe: &text, Count: &number, Parts: []part{{"x", 1}, {}, {"y", 2}},
		},
	} {
		b, err := Append([]byte("head"), &v)
		if err != nil || !bytes.HasPrefix(b, []byte("head")) {
			t.Fatalf("%s: %q %v", name, b, err)
		}
		var got whole
		if err := Unmarshal(b[4:], &got); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%s: got %+v, want %+v: %v", name, got, v, err)
		}
	}
}

// TestGenerated compares the bytes with those of generated code, for a type that has both.
func TestGenerated(t *testing.T) {
	type owner struct { // as metav1.OwnerReference, without its methods and pointers to bool
		Kind       string `protobuf:"bytes,1,opt,name=kind"`
		Name       string `protobuf:"bytes,3,opt,name=name"`
		UID        string `protobuf:"bytes,4,opt,name=uid"`
		APIVersion string `protobuf:"bytes,5,opt,name=apiVersion"`
	}
	want, err := (&metav1.OwnerReference{Kind: "k", UID: "u", APIVersion: "v"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Append(nil, &owner{Kind: "k", UID: "u", APIVersion: "v"}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x, %v", got, want, err)
	}
}

func TestUnmarshal(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		want part
		err  string
	}{
		"unknown fields are skipped":   {"\x0a\x01a\x7a\x01z\x20\x05", part{"a", 0}, ""},
		"the last one counts":          {"\x18\x01\x18\x02", part{"", 2}, ""},
		"as many bits as the field":    {"\x18\x81\x80\x80\x80\x10", part{"", 1}, ""},
		"another wire type":            {"\x08\x01", part{}, "Name: proto: wrong wireType"},
		"a number as bytes":            {"\x1a\x01a", part{}, "N: proto: wrong wireType"},
		"the tag is not complete":      {"\x80", part{}, "unexpected EOF"},
		"the text is not complete":     {"\x0a\x05a", part{}, "unexpected EOF"},
		"nothing changes what is left": {"", part{}, ""},
	} {
		var got part
		err := Unmarshal([]byte(test.data), &got)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && got != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := Append(nil, &struct {
		B bool `protobuf:"varint,1,opt,name=b"`
	}{}); err == nil {
		t.Error("a bool was encoded")
	}
}
