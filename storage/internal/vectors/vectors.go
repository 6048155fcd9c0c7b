// Package vectors ranks the items of the store by their embeddings: the vectors of a SQLite database, held in memory, and those that a
// Postgres database without pgvector sends.
//
// All vectors have length one, so that their dot product is the cosine.
package vectors

import (
	"encoding/binary"
	"math"
)

// Dot returns the dot product of vectors of the same length.
func Dot(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := a[:8:8], b[:8:8] // one check of the bounds
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
		s4 += x[4] * y[4]
		s5 += x[5] * y[5]
		s6 += x[6] * y[6]
		s7 += x[7] * y[7]
		a, b = a[8:], b[8:]
	}
	for i := range min(len(a), len(b)) {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3) + (s4 + s5) + (s6 + s7)
}

// Score returns a dot product of vectors of length one as a cosine: rounding does not take it out of its range.
func Score(dot float32) float64 { return min(max(float64(dot), -1), 1) }

// AppendBytes appends a vector in the form in which SQLite stores it: little-endian float32.
func AppendBytes(b []byte, v []float32) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// Decode reads the form of AppendBytes into v. It reports whether b has as many numbers as v.
func Decode(v []float32, b []byte) bool {
	if len(b) != 4*len(v) {
		return false
	}
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return true
}

// DecodeArray reads an array of Postgres in binary form, without NULLs, into v. It reports whether the array has as many elements as v.
func DecodeArray(v []float32, b []byte) bool {
	const header, element = 20, 8
	if len(b) != header+element*len(v) || binary.BigEndian.Uint32(b) != 1 {
		return false
	}
	b = b[header:]
	for i := range v {
		v[i] = math.Float32frombits(binary.BigEndian.Uint32(b[element*i+4:]))
	}
	return true
}
