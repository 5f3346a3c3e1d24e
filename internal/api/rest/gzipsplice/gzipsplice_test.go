package gzipsplice

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// unzip reads a stream by the standard library and by another decoder. Both check
// length and checksum.
func unzip(t *testing.T, stream []byte) []byte {
	t.Helper()
	z, err := stdgzip.NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	other, err := gzip.NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	again, err := io.ReadAll(other)
	if err != nil || !bytes.Equal(again, text) {
		t.Fatalf("two decoders read different texts (%v)", err)
	}
	return text
}

// play makes a stream as the script says and returns it with its text.
func play(t *testing.T, script []byte) (stream, text []byte) {
	t.Helper()
	seed := [32]byte{}
	copy(seed[:], script)
	r := rand.New(rand.NewChaCha8(seed))
	var pieces []Piece
	var texts [][]byte
	var out bytes.Buffer
	w := NewWriter(&out, 1+r.IntN(1<<16), nil)
	for _, b := range script {
		switch {
		case b < 64: // a short text
			short := randomText(r, int(b))
			w.Text(short)
			text = append(text, short...)
		case b < 70: // one of more than a block
			long := randomText(r, maxStored+r.IntN(3)-1)
			w.Text(long)
			text = append(text, long...)
		case b < 160 && len(pieces) > 0: // a piece again
			i := int(b) % len(pieces)
			w.Piece(pieces[i])
			text = append(text, texts[i]...)
		default:
			body := randomText(r, r.IntN(1<<(b%18)))
			p, err := Compress(body)
			if err != nil {
				t.Fatal(err)
			}
			if p.Len() != int64(len(body)) {
				t.Fatalf("length %d of %d bytes", p.Len(), len(body))
			}
			pieces, texts = append(pieces, p), append(texts, body)
			w.Piece(p)
			text = append(text, body...)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), text
}

// randomText is text that repeats itself here and there, and sometimes noise.
func randomText(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+64)
	for len(b) < n {
		switch r.IntN(8) {
		case 0:
			b = append(b, byte(r.Uint32()))
		case 1:
			b = fmt.Appendf(b, `{"metadata":{"name":"pod-%d"},"spec":{}}`, r.IntN(100))
		default:
			b = append(b, strings.Repeat("the same again ", 1+r.IntN(4))...)
		}
	}
	return b[:n]
}

func TestStreamsReadAsTheirTexts(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, r.IntN(40))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		stream, text := play(t, script)
		if got := unzip(t, stream); !bytes.Equal(got, text) {
			t.Fatalf("seed %d: %d bytes, want %d", seed, len(got), len(text))
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 200, 1, 100, 65, 255})
	f.Fuzz(func(t *testing.T, script []byte) {
		stream, text := play(t, script[:min(len(script), 64)])
		if got := unzip(t, stream); !bytes.Equal(got, text) {
			t.Fatalf("%d bytes, want %d", len(got), len(text))
		}
	})
}

func TestSumsAreCombined(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		a, b := randomText(r, r.IntN(5000)), randomText(r, r.IntN(5000))
		got := multiply(factor(int64(len(b))), crc32.ChecksumIEEE(a)) ^ crc32.ChecksumIEEE(b)
		if want := crc32.ChecksumIEEE(append(a, b...)); got != want {
			t.Fatalf("%d and %d bytes: %08x, want %08x", len(a), len(b), got, want)
		}
	}
	// x^(8n) by n single steps.
	power := uint32(one)
	for n := range int64(2000) {
		if got := factor(n); got != power {
			t.Fatalf("factor(%d) is %08x, want %08x", n, got, power)
		}
		power = multiply(power, aByte)
	}
}

type failing struct{ after int }

var errFull = errors.New("full")

func (f *failing) Write(b []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestErrorsOfTheConnectionAreReturned(t *testing.T) {
	p, err := Compress([]byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	for after := range 4 {
		w := NewWriter(&failing{after}, 8, nil)
		for range 10 {
			w.Piece(p)
		}
		if err := w.Close(); !errors.Is(err, errFull) {
			t.Errorf("after %d writes: %v", after, err)
		}
	}
	w := NewWriter(io.Discard, 8, nil)
	w.Piece(Piece("short"))
	if w.Close() == nil {
		t.Error("what is no piece was taken for one")
	}
}

func BenchmarkPiece(b *testing.B) {
	p, err := Compress(bytes.Repeat([]byte(`{"metadata":{"name":"pod"}}`), 7000))
	if err != nil {
		b.Fatal(err)
	}
	w := NewWriter(io.Discard, 128<<10, nil)
	b.ReportAllocs()
	for b.Loop() {
		w.Piece(p)
	}
}
