#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches in TensorFlow. Skipped without tensorflow."""
import case

tf = case.need("tensorflow")
import stager  # noqa: E402
import stager.tensorflow  # noqa: E402


class TensorFlow(case.Case):
    def test_a_dataset_has_the_pipelines_signature(self):
        path = self.file("lines", "1 2\n3\n4 5 6\n7\n")

        def features(r):
            words = stager.ops.string_split(r["record"])
            parts = stager.ops.string_split(r["record"], result_type="sparse")
            return {"line": r["record"], "length": stager.ops.string_length(r["record"]),
                    "ragged": stager.Ragged(words[0], words[1]),
                    "list": [stager.Sparse(parts[0], parts[1], parts[2])]}
        name = stager.apply(stager.files(path, shuffle=False).text_line().batch(2).map(features),
                            name="tensorflow")
        dataset = stager.tensorflow.dataset(name)
        self.assertEqual(dataset.element_spec["length"], tf.TensorSpec([None], tf.int32))
        for _ in range(2):
            first, second = dataset
            self.assertEqual(first["line"].numpy().tolist(), [b"1 2", b"3"])
            self.assertEqual(second["length"].numpy().tolist(), [5, 1])
            want = tf.strings.split(tf.constant([b"4 5 6", b"7"]))
            self.assertEqual(second["ragged"].to_list(), want.to_list())
            dense = tf.sparse.to_dense(second["list"][0])
            self.assertEqual(dense.numpy().tolist(), want.to_tensor().numpy().tolist())

    def test_a_dataset_of_a_stream_leaves_it_to_its_opener(self):
        name = self.numbers(stop=4)
        for _ in range(2):  # the pipeline is for one client: the first one has left
            with stager.open(name) as stream:
                dataset = stager.tensorflow.dataset(stream)
                self.assertEqual([rows["value"].numpy().tolist() for rows in dataset], [[0, 1], [2, 3]])

    def test_tensors_are_copies_that_outlive_their_batch(self):
        stream = stager.open(self.numbers(stop=4))
        with stream.next() as batch:
            tensor = stager.tensorflow.tree(batch)["value"]
        self.assertEqual((tensor.dtype, tensor.numpy().tolist()), (tf.int64, [0, 1]))


if __name__ == "__main__":
    case.main()
