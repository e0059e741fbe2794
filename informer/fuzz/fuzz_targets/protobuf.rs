#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| reeve_informer::fuzz::protobuf(input));
