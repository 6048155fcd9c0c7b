package jsonplus

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// array is a numpy array as stored: the text of its dtype, its shape, and its elements.
type array struct {
	order       binary.ByteOrder
	kind        byte // b bool, i int, u uint, f float, U text, S bytes
	size        int  // of an element, in bytes
	data        []byte
	shape       [maxDims]int
	dims        int
	columnMajor bool
}

// maxDims is numpy's own limit.
const maxDims = 64

// appendNumpy appends an array as nested lists. Element types that JSON has nothing for are an error.
func appendNumpy(dst, payload []byte) ([]byte, error) {
	a, err := readArray(payload)
	if err != nil {
		return dst, err
	}
	return a.append(dst, 0, 0, 1)
}

func readArray(b []byte) (a array, err error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || n != 4 {
		return a, errCorrupt
	}
	dtype, b, err := msgp.ReadStringZC(b)
	if err != nil {
		return a, err
	}
	if len(dtype) < 3 {
		return a, errCorrupt
	}
	a.order = binary.LittleEndian
	if dtype[0] == '>' {
		a.order = binary.BigEndian
	}
	a.kind = dtype[1]
	if a.size, err = strconv.Atoi(string(dtype[2:])); err != nil || a.size <= 0 || a.size > math.MaxInt32 {
		return a, errCorrupt
	}
	switch a.kind {
	case 'b', 'S':
	case 'i', 'u', 'f':
		if a.size > 8 || a.size&(a.size-1) != 0 || a.kind == 'f' && a.size == 1 {
			return a, errCorrupt
		}
	case 'U': // counted in characters of four bytes
		a.size *= 4
	default:
		return a, errCorrupt
	}
	dims, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || dims > maxDims {
		return a, errCorrupt
	}
	a.dims = int(dims)
	elements, lists := 1, 1
	for i := range a.dims {
		var n int64
		if n, b, err = msgp.ReadInt64Bytes(b); err != nil || n < 0 {
			return a, errCorrupt
		}
		// What is printed must not outgrow what is stored, also when a dimension is 0 and there are no elements at all.
		if lists > math.MaxInt32/int(min(max(n, 1), math.MaxInt32)) || n > math.MaxInt32 {
			return a, errCorrupt
		}
		if elements > 0 {
			lists *= int(max(n, 1))
		}
		elements *= int(n)
		a.shape[i] = int(n)
	}
	order, b, err := msgp.ReadStringZC(b)
	if err != nil {
		return a, err
	}
	a.columnMajor = string(order) == "F"
	if a.data, _, err = msgp.ReadBytesZC(b); err != nil {
		return a, err
	}
	if elements*a.size != len(a.data) || elements == 0 && lists > 1<<10 {
		return a, errCorrupt
	}
	return a, nil
}

// append appends the sub-array at a position: index counts elements so far in the array's own order; stride is the
// distance of neighbours along dim when columns come first.
func (a *array) append(dst []byte, dim, index, stride int) ([]byte, error) {
	if dim == a.dims {
		return a.appendElement(dst, a.data[index*a.size:][:a.size])
	}
	step, next := stride, stride*a.shape[dim]
	if !a.columnMajor {
		step, next = 1, 1
		for _, n := range a.shape[dim+1 : a.dims] {
			step *= n
		}
	}
	dst = append(dst, '[')
	var err error
	for i := range a.shape[dim] {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = a.append(dst, dim+1, index+i*step, next); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func (a *array) appendElement(dst, e []byte) ([]byte, error) {
	switch a.kind {
	case 'b':
		return strconv.AppendBool(dst, e[0] != 0), nil
	case 'S':
		for len(e) > 0 && e[len(e)-1] == 0 {
			e = e[:len(e)-1]
		}
		return appendBase64(dst, e), nil
	case 'U':
		dst = append(dst, '"')
		var last int
		for i := 0; i < len(e); i += 4 {
			if a.order.Uint32(e[i:]) != 0 {
				last = i + 4
			}
		}
		var char [utf8.UTFMax]byte
		for i := 0; i < last; i += 4 {
			n := utf8.EncodeRune(char[:], rune(a.order.Uint32(e[i:])))
			dst = appendText(dst, char[:n])
		}
		return append(dst, '"'), nil
	}
	var bits uint64
	switch a.size {
	case 1:
		bits = uint64(e[0])
	case 2:
		bits = uint64(a.order.Uint16(e))
	case 4:
		bits = uint64(a.order.Uint32(e))
	default:
		bits = a.order.Uint64(e)
	}
	switch {
	case a.kind == 'u':
		return strconv.AppendUint(dst, bits, 10), nil
	case a.kind == 'i':
		shift := 64 - 8*a.size
		return strconv.AppendInt(dst, int64(bits<<shift)>>shift, 10), nil
	case a.size == 2:
		return appendFloat(dst, halfFloat(uint16(bits))), nil
	case a.size == 4:
		return appendFloat(dst, float64(math.Float32frombits(uint32(bits)))), nil
	}
	return appendFloat(dst, math.Float64frombits(bits)), nil
}

// halfFloat widens an IEEE 754 half precision number.
func halfFloat(bits uint16) float64 {
	sign, exponent, fraction := 1.0, int(bits>>10&31), float64(bits&1023)
	if bits>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}
