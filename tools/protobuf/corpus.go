package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const corpusHead = `# Objects as client-go writes them, four lines each: kind and filling; protobuf in base64; the JSON of what client-go
# reads from it; and what client-go writes of that JSON, or = for the same as the second line.
# Written by tools/protobuf/generate.sh, not by hand.
`

// The number of random fillings, of which the largest below a bound is used: many fields in a file of moderate size.
const (
	tries   = 40
	largest = 1500
)

// Lists of these kinds stand for all lists, which have the same two fields.
var lists = map[string]bool{
	"ConfigMapList": true, "PartialObjectMetadataList": true, "LeaseList": true, "ServiceList": true,
}

// Writes each kind empty, with every pointer at a zero value, with every field, and with random values.
func writeCorpus(out io.Writer, known *runtime.Scheme, roots []root) {
	fmt.Fprint(out, corpusHead)
	for _, root := range roots {
		if strings.HasSuffix(root.Kind, "List") && !lists[root.Kind] {
			continue
		}
		write := func(filling string, encoded []byte, text string) {
			again := "="
			if bytes := encodeJSON(known, root, text); !slices.Equal(bytes, encoded) {
				again = base64.StdEncoding.EncodeToString(bytes)
			}
			fmt.Fprintf(out, "%s %s %s\n%s\n%s\n%s\n", root.GroupVersion(), root.Kind, filling,
				base64.StdEncoding.EncodeToString(encoded), text, again)
		}
		// One kind with all fields of a Pod is enough.
		withoutPods := root.Kind != "Pod"
		encoded, text := encode(known, root, &filler{})
		write("empty", encoded, text)
		encoded, text = encode(known, root, &filler{zeros: true, withoutPods: withoutPods})
		write("zeros", encoded, text)
		fill := filler{random: randomOf(root, 0, 0), chance: 1, full: true, withoutPods: withoutPods}
		encoded, text = encode(known, root, &fill)
		write("full", encoded, text)
		var best []byte
		var bestText string
		for try := range tries {
			random := randomOf(root, 1, try)
			fill := filler{random: random, chance: 0.1 + 0.7*random.Float64()}
			encoded, text := encode(known, root, &fill)
			if len(text) <= largest && len(text) > len(bestText) {
				best, bestText = encoded, text
			}
		}
		if best != nil {
			write("random", best, bestText)
		}
	}
}

// What client-go writes of an object that it reads from JSON.
func encodeJSON(known *runtime.Scheme, root root, text string) []byte {
	plain := json.NewSerializerWithOptions(json.DefaultMetaFactory, known, known, json.SerializerOptions{})
	decoded, _, err := plain.Decode([]byte(text), &root.GroupVersionKind, nil)
	if err != nil {
		log.Fatalf("%v: %v", root.GroupVersionKind, err)
	}
	decoded.GetObjectKind().SetGroupVersionKind(root.GroupVersionKind)
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(known, known).Encode(decoded, &encoded); err != nil {
		log.Fatalf("%v: %v", root.GroupVersionKind, err)
	}
	return encoded.Bytes()
}

// The same numbers in every run.
func randomOf(root root, number, try int) *rand.Rand {
	seed := fnv.New64a()
	fmt.Fprintf(seed, "%v %d %d", root.GroupVersionKind, number, try)
	return rand.New(rand.NewSource(int64(seed.Sum64())))
}

// An object in protobuf, and the JSON of the object that client-go's own decoder returns for it.
func encode(known *runtime.Scheme, root root, fill *filler) ([]byte, string) {
	object := reflect.New(root.goType)
	fill.value(object.Elem(), 0)
	typed := object.Interface().(runtime.Object)
	typed.GetObjectKind().SetGroupVersionKind(root.GroupVersionKind)
	wire := protobuf.NewSerializer(known, known)
	var encoded, text bytes.Buffer
	if err := wire.Encode(typed, &encoded); err != nil {
		log.Fatalf("%v: %v", root.GroupVersionKind, err)
	}
	decoded, _, err := wire.Decode(encoded.Bytes(), nil, nil)
	if err != nil {
		log.Fatalf("%v: %v", root.GroupVersionKind, err)
	}
	decoded.GetObjectKind().SetGroupVersionKind(root.GroupVersionKind)
	plain := json.NewSerializerWithOptions(json.DefaultMetaFactory, known, known, json.SerializerOptions{})
	if err := plain.Encode(decoded, &text); err != nil {
		log.Fatalf("%v: %v", root.GroupVersionKind, err)
	}
	return encoded.Bytes(), strings.TrimSpace(text.String())
}

// Fills Go values: with nothing, with pointers to zero values and lists of one zero value, or at random.
type filler struct {
	zeros       bool
	full        bool
	withoutPods bool
	random      *rand.Rand
	chance      float64
	schemas     int
}

func (f *filler) skip() bool {
	return f.random == nil || f.random.Float64() >= f.chance
}

func (f *filler) text() string {
	if !f.full && f.random.Intn(8) == 0 {
		return ""
	}
	letters := []rune("abcxyz01-./é\"\\\n<&\u2028😀")
	size := 1 + f.random.Intn(4)
	text := make([]rune, size)
	for at := range text {
		text[at] = letters[f.random.Intn(len(letters))]
	}
	return string(text)
}

func (f *filler) integer(bits int) int64 {
	edges := []int64{0, 1, -1, 80, 1<<31 - 1, -1 << 31}
	if bits == 64 {
		edges = append(edges, 1<<63-1, -1<<63, 1<<53+1)
	}
	return edges[f.random.Intn(len(edges))]
}

func (f *filler) raw() []byte {
	texts := []string{`{"a":{"b":[1,2.5,null]}}`, `"x"`, `0`, `-1.5`, `[]`, `{}`, `true`, `9007199254740993`}
	return []byte(texts[f.random.Intn(len(texts))])
}

// Fills values of types that have their own form. Returns whether the type is one of them.
func (f *filler) special(value reflect.Value) bool {
	switch nameOf(value.Type()) {
	case "meta.v1.Time", "meta.v1.MicroTime":
		if f.skip() {
			return true
		}
		seconds := []int64{0, 1, 1767225600, -1, 253402300799, -62135596799}
		at := time.Unix(seconds[f.random.Intn(len(seconds))], f.random.Int63n(1e9))
		if value.Type().Name() == "Time" {
			value.Set(reflect.ValueOf(metav1.NewTime(at)))
		} else {
			value.Set(reflect.ValueOf(metav1.NewMicroTime(at)))
		}
	case "api.resource.Quantity":
		if f.skip() {
			return true
		}
		texts := []string{"0", "100m", "1", "2Gi", "1500M", "-3", "1e3", "0.5", "1.25", "12345678901234567890", "5n"}
		value.Set(reflect.ValueOf(resource.MustParse(texts[f.random.Intn(len(texts))])))
	case "util.intstr.IntOrString":
		if f.skip() {
			return true
		}
		if f.random.Intn(2) == 0 {
			value.Set(reflect.ValueOf(intstr.FromString(f.text())))
		} else {
			value.Set(reflect.ValueOf(intstr.FromInt32(int32(f.integer(32)))))
		}
	case "meta.v1.FieldsV1", "pkg.runtime.RawExtension", "apiextensions.v1.JSON":
		if !f.skip() {
			value.FieldByName("Raw").SetBytes(f.raw())
		}
	default:
		return false
	}
	return true
}

func (f *filler) value(value reflect.Value, depth int) {
	if f.special(value) {
		return
	}
	deep := depth > 30 || isSchema(value.Type()) && f.schemas > 1
	switch value.Kind() {
	case reflect.Struct:
		name := nameOf(value.Type())
		if name == "core.v1.PodSpec" && f.withoutPods {
			return
		}
		if name == "apiextensions.v1.JSONSchemaProps" {
			f.schemas++
			defer func() { f.schemas-- }()
		}
		for at := range value.NumField() {
			if value.Type().Field(at).Name != "TypeMeta" {
				f.value(value.Field(at), depth+1)
			}
		}
	case reflect.Pointer:
		if deep || !f.zeros && f.skip() {
			return
		}
		value.Set(reflect.New(value.Type().Elem()))
		f.value(value.Elem(), depth+1)
	case reflect.Slice:
		if deep || !f.zeros && f.skip() {
			return
		}
		if value.Type().Elem().Kind() == reflect.Uint8 {
			size := 0
			if f.random != nil {
				size = f.random.Intn(6)
			}
			bytes := make([]byte, size)
			for at := range bytes {
				bytes[at] = byte(f.random.Intn(256))
			}
			value.SetBytes(bytes)
			return
		}
		f.list(value, depth)
	case reflect.Map:
		if deep || !f.zeros && f.skip() {
			return
		}
		f.entries(value, depth)
	case reflect.String:
		if !f.zeros && !f.skip() {
			value.SetString(f.text())
		}
	case reflect.Bool:
		value.SetBool(!f.zeros && !f.skip() && (f.full || f.random.Intn(2) == 0))
	case reflect.Int32:
		if !f.zeros && !f.skip() {
			value.SetInt(f.integer(32))
		}
	case reflect.Int64:
		if !f.zeros && !f.skip() {
			value.SetInt(f.integer(64))
		}
	case reflect.Float64:
		if !f.zeros && !f.skip() {
			numbers := []float64{0, 1, -1, 0.5, 1e20, 1e21, -2.5e-7, 3.14}
			value.SetFloat(numbers[f.random.Intn(len(numbers))])
		}
	default:
		log.Fatalf("no filling for %v", value.Type())
	}
}

// Schemas contain schemas: two levels are enough.
func isSchema(of reflect.Type) bool {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	return strings.HasPrefix(of.Name(), "JSONSchemaProps")
}

func (f *filler) list(value reflect.Value, depth int) {
	size := 1
	if f.random != nil && !f.full {
		size += f.random.Intn(2)
	}
	value.Set(reflect.MakeSlice(value.Type(), size, size))
	for at := range size {
		f.value(value.Index(at), depth+1)
	}
}

func (f *filler) entries(value reflect.Value, depth int) {
	value.Set(reflect.MakeMap(value.Type()))
	size := 1
	if f.random != nil && !f.full {
		size += f.random.Intn(2)
	}
	for range size {
		key := reflect.New(value.Type().Key()).Elem()
		element := reflect.New(value.Type().Elem()).Elem()
		if f.random != nil {
			key.SetString(f.text())
		}
		f.value(element, depth+1)
		value.SetMapIndex(key, element)
	}
}
