/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by golden_sigv4.py: do not edit.
 */
/* clang-format off */

static const struct {
    const char *url, *signature;
} golden_sigv4[] = {
    {"https://examplebucket.s3.amazonaws.com/?continuation-token=at%2F%2B3&delimiter=%2F&encoding-type=url&list-type=2&prefix=data%2Fpart-",
     "3ea92300a2c1a950c7685f6825a2fbfb0213ba9766c6c632e020c3ed42755d74"},
    {"https://examplebucket.s3.amazonaws.com/?prefix=a%2Bb%20c%25%3D%26d&list-type=2",
     "0c2cd3815c4cae335e89bd59eab0d3ec05f79fb037384510e77f78c0673a2594"},
    {"https://examplebucket.s3.amazonaws.com/?a-b=1&a=2&a%20=3&ab=4&a",
     "3ed218a144561ec304a19ec38dc9c4045f12432f960db7f290245eaed1cd6897"},
    {"https://examplebucket.s3.amazonaws.com/?&&b&&a=&",
     "9a7c8fab62d37a96644f3ac8a78c6efca16ca2fb4e7b0b5e70fb5bd2c05d40e5"},
    {"https://examplebucket.s3.amazonaws.com/?x=1=2&x=1",
     "7e7361d4e78fc270d66828d7f5899d497dbfe15a61b2d7571df0a7ca2ba9dbb7"},
    {"https://examplebucket.s3.amazonaws.com/?all=%01%02%03%04%05%06%07%08%09%0A%0B%0C%0D%0E%0F%10%11%12%13%14%15%16%17%18%19%1A%1B%1C%1D%1E%1F%20%21%22%23%24%25%26%27%28%29%2A%2B%2C-.%2F0123456789%3A%3B%3C%3D%3E%3F%40ABCDEFGHIJKLMNOPQRSTUVWXYZ%5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D~&%01%02%03%04%05%06%07%08%09%0A%0B%0C%0D%0E%0F%10%11%12%13%14%15%16%17%18%19%1A%1B%1C%1D%1E%1F%20%21%22%23%24%25%26%27%28%29%2A%2B%2C-.%2F0123456789%3A%3B%3C%3D%3E%3F%40ABCDEFGHIJKLMNOPQRSTUVWXYZ%5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D~",
     "b4cc16fb6826198fffa5686f320bddbeecda9ff3f853247aea18101fbda32062"},
};
