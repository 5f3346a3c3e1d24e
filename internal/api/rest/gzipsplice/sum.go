package gzipsplice

// A CRC-32 is the remainder of a text, as a polynomial over GF(2), divided by crcPoly. So the CRC of two texts together
// is the CRC of the first times x^(8n), where n is the length of the second, plus the CRC of the second. Polynomials
// are written as in the CRC-32 of RFC 1952: the highest bit is the coefficient of x^0. The inversions at its beginning
// and end cancel out.
const (
	crcPoly = 0xedb88320
	one     = 1 << 31       // x^0
	aByte   = 1 << (31 - 8) // x^8
)

// multiply returns the product of two polynomials, reduced.
func multiply(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 {
		if a&one != 0 {
			product ^= b
		}
		// Bits are reversed, so multiplying by x is a shift to the right. A bit that falls out is x^32, which
		// crcPoly reduces.
		b = b>>1 ^ crcPoly&-(b&1) // times x
	}
	return product
}

// factor returns x^(8n). It squares repeatedly, so it takes at most 63 steps for any length.
func factor(n int64) uint32 {
	power := uint32(one)
	for square := uint32(aByte); n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiply(square, power)
		}
		square = multiply(square, square)
	}
	return power
}
